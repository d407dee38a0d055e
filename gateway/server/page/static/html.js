/** The one place that binds htm to preact; views import their building blocks from here. */
import { Component as PreactComponent, h, render } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(h);
/** @type {new (props?: any) => {props: any}} */
export const Component = /** @type {any} */ (PreactComponent);
export { render };
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
export { batch, computed, effect, signal, useSignal } from "./vendor/signals.js";
