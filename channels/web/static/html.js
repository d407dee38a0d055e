/** The one place that binds htm to preact; views import their building blocks from here. */
import { h, Fragment, render } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { Fragment, render };
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
export { batch, computed, effect, signal, useSignal } from "./vendor/signals.js";
