/** Files of the message that is being written: checked, uploaded, offered again after a break. Loaded with the first. */
import { batch } from "./html.js";
import { bytes, plural } from "./format.js";
import * as storage from "./storage.js";
import { added, me, uploadLimits } from "./state.js";

/** Uploads at once. */
const AT_ONCE = 3;
/** Time in ms without any progress after which an upload counts as broken. */
const PATIENCE = 30_000;

/** Contents by id: they live as long as the page. @type {Map<string, File>} */
const contents = new Map();
/** @type {Map<string, XMLHttpRequest>} */
const running = new Map();
/** @typedef {import("./types.js").Added} Added */

const save = () => storage.saveFiles(me.value.owner, added.value.map(({ picture, ...one }) => one));

/** @param {string} id @param {Partial<Added>} change */
function set(id, change) {
  added.value = added.value.map((one) => (one.id === id ? { ...one, ...change } : one));
  save();
}

/** Takes over the files of a reloaded page; those that were under way have lost their content. */
export function restore() {
  added.value = storage.loadFiles(me.value.owner).map((/** @type {Added} */ one) =>
    one.state === "ready" ? { ...one, picture: "" } : { ...one, picture: "", state: "lost", error: "Not uploaded. Choose it again." },
  );
}

/** Lets go of all files without a word to the server: they belong to a sent message, or to somebody else. */
export function forget() {
  for (const request of running.values()) request.abort();
  for (const one of added.value) if (one.picture) URL.revokeObjectURL(one.picture);
  running.clear();
  contents.clear();
  added.value = [];
}

/** Adds files. @param {Iterable<File>} files @param {() => string} uuid @returns {string} what is refused, in words; else empty */
export function add(files, uuid) {
  const refused = [];
  batch(() => {
    for (const file of files) {
      const why = trouble(file);
      if (why) refused.push(why);
      else take(file, uuid());
    }
  });
  work();
  return refused.length > 1 ? `${plural(refused.length, "file is", "files are")} not added. ${refused[0]}` : (refused[0] ?? "");
}

/** @param {File} file */
function trouble(file) {
  const { files, file: one, message } = uploadLimits.value;
  const held = added.value.reduce((sum, item) => sum + item.size, 0);
  if (!file.size) return `${file.name} is empty, or a folder.`;
  if (file.size > one) return `${file.name} has ${bytes(file.size)}; a file may have ${bytes(one)}.`;
  if (added.value.length >= files) return `A message has at most ${files} files. Send the others in the next one.`;
  if (held + file.size > message) return `The files of a message may have ${bytes(message)} together.`;
  return "";
}

/** @param {File} file @param {string} fresh */
function take(file, fresh) {
  const lost = added.value.find((one) => one.state === "lost" && one.name === file.name && one.size === file.size);
  const id = lost?.id ?? fresh;
  contents.set(id, file);
  const picture = /^image\/(png|jpeg|gif|webp)$/.test(file.type) ? URL.createObjectURL(file) : "";
  const one = { id, name: file.name || "file", size: file.size, type: file.type, sent: 0, error: "", picture };
  added.value = [...added.value.filter((item) => item.id !== id), { ...one, state: /** @type {const} */ ("waiting") }];
}

/** Starts as many waiting uploads as may run. */
function work() {
  for (const one of added.value) {
    if (running.size >= AT_ONCE) return;
    if (one.state === "waiting") start(one);
  }
}

/** @param {Added} one */
function start(one) {
  const request = new XMLHttpRequest();
  let timer = 0;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => request.abort(), PATIENCE);
  };
  running.set(one.id, request);
  request.open("PUT", `/api/uploads/${one.id}`);
  for (const [name, value] of Object.entries(storage.keyHeader())) request.setRequestHeader(name, value);
  request.setRequestHeader("X-Dragoman-Name", encodeURIComponent(wellFormed(one.name.slice(0, 300))));
  request.setRequestHeader("Content-Type", one.type || "application/octet-stream");
  request.upload.onprogress = (event) => {
    alive();
    set(one.id, { sent: event.loaded });
  };
  request.onloadend = () => {
    clearTimeout(timer);
    if (running.get(one.id) !== request) return;
    running.delete(one.id);
    set(one.id, outcome(request, one));
    work();
  };
  alive();
  set(one.id, { state: "uploading", sent: 0, error: "" });
  request.send(contents.get(one.id));
}

/** Half a character, as in a name cut in the middle, cannot be encoded. @param {string} name */
const wellFormed = (name) => name.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");

/** @param {XMLHttpRequest} request @param {Added} one @returns {Partial<Added>} */
function outcome(request, one) {
  if (request.status === 200) return { state: "ready", sent: one.size };
  let error = "";
  try {
    error = JSON.parse(request.responseText).error ?? "";
  } catch {
    /* no answer of ours */
  }
  const final = [400, 413].includes(request.status) && !error.includes("broke off");
  if (final) return { state: "refused", error: error || "Not accepted." };
  return { state: "broken", error: error || "The upload broke off." };
}

/** Tries a broken upload again. @param {string} id */
export function again(id) {
  if (contents.has(id)) set(id, { state: "waiting", error: "" });
  work();
}

/** Tries all broken uploads again, when the connection is back. */
export function resume() {
  for (const one of added.value) if (one.state === "broken") again(one.id);
}

/** Takes a file back. @param {string} id */
export function remove(id) {
  const request = running.get(id);
  running.delete(id);
  request?.abort();
  const one = added.value.find((item) => item.id === id);
  if (one?.picture) URL.revokeObjectURL(one.picture);
  contents.delete(id);
  added.value = added.value.filter((item) => item.id !== id);
  save();
  fetch(`/api/uploads/${id}`, { method: "DELETE", headers: storage.keyHeader() }).catch(() => null);
  work();
}

/** Returns the files for a message that is sent now, and clears the list. */
export function takeAll() {
  const files = added.value.map(({ id, name, size }) => ({ id, name, size }));
  forget();
  save();
  return files;
}

/** Puts the files of a message that was not sent back to the next one. @param {{id: string, name: string, size: number}[]} files */
export function giveBack(files) {
  const known = new Set(added.value.map((one) => one.id));
  const back = files.filter((one) => !known.has(one.id));
  added.value = [...added.value, ...back.map((one) => ({ ...one, type: "", sent: one.size, error: "", picture: "", state: /** @type {const} */ ("ready") }))];
  save();
}
