/** Player of a recording, fetched with this page's key when somebody wants to hear it. Loaded with the first of them. */
import { html, useEffect, useState } from "../html.js";
import { keyHeader } from "../storage.js";

/** @param {{from: string, name: string}} props */
export function Player({ from, name }) {
  const [url, setUrl] = useState("");
  const [failed, setFailed] = useState(false);
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  const play = async () => {
    const answer = await fetch(from, { headers: keyHeader() }).catch(() => null);
    const blob = answer?.ok ? await answer.blob().catch(() => null) : null;
    setFailed(!blob);
    if (blob) setUrl(URL.createObjectURL(blob));
  };
  const onError = () => (setUrl(""), setFailed(true));
  return url
    ? html`<audio class="player" data-testid="player" controls autoplay src=${url} aria-label=${name} onError=${onError}></audio>`
    : html`<button type="button" class="link player" data-testid="play" onClick=${play}>${failed ? `${name} was not played; try again` : `Play ${name}`}</button>`;
}
