/** Line icons of 16 px, drawn here. Decorative: the word beside an icon has the meaning. */
import { html } from "../html.js";

const PATHS = {
  write: "M10.5 3 13 5.5 5.5 13H3v-2.5zM9 4.5 11.5 7",
  execute: "M3 4.5 6.5 8 3 11.5M8 12h5",
  network: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM2 8h12M8 2c2 2 2.5 4 2.5 6S10 12 8 14C6 12 5.5 10 5.5 8S6 4 8 2z",
  read: "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8zM8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6z",
  none: "M8 3v5l3 2M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z",
  check: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  clock: "M8 4.5V8l2.5 1.5M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2z",
  stop: "M4.5 4.5h7v7h-7z",
  send: "M8 13V3M3.5 7.5 8 3l4.5 4.5",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.5V3M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  system: "M2 3h12v8H2zM6 13.5h4M8 11v2.5",
  help: "M6 6a2 2 0 1 1 2.6 1.9c-.4.2-.6.5-.6.9v.7M8 11.8v.1M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z",
  chevron: "M6 4l4 4-4 4",
  "down-small": "M4 6l4 4 4-4",
  down: "M8 3v10M3.5 8.5 8 13l4.5-4.5",
  leave: "M6 2.5H3v11h3M10 5l3 3-3 3M13 8H6.5",
  inspect: "M2.5 3.5h11M2.5 8h7M2.5 12.5h4",
  branch: "M4.5 2.5v11M4.5 10c0-3 7-1.5 7-5M9.5 5l2-2.5 2 2.5",
  open: "M9.5 2.5h4v4M13.5 2.5 8 8M11.5 9.5v4h-9v-9h4",
  clip: "M13 7.2 7.9 12.3a3.2 3.2 0 0 1-4.6-4.6l5.6-5.5a2.1 2.1 0 0 1 3 3L6.5 10.6a1 1 0 0 1-1.5-1.5L9.8 4.4",
  file: "M4 1.8h5l3 3v9.4H4zM9 1.8v3h3",
  warn: "M8 2 14.5 13.5h-13zM8 6.5v3M8 11.5v.1",
};

/** @param {{name: string, label?: string}} props  `label` only where no word stands beside it */
export function Icon({ name, label }) {
  return html`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" fill="none" stroke="currentColor" stroke-width="1.5"
    stroke-linecap="round" stroke-linejoin="round" role=${label ? "img" : undefined} aria-label=${label} aria-hidden=${label ? undefined : "true"}>
    <path d=${PATHS[/** @type {keyof typeof PATHS} */ (name)] ?? PATHS.none} /></svg>`;
}
