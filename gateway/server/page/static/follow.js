/** Subscriptions to sessions: main, the shown one, and active ones below either. Driven by actions.js. */
import { liveBelow } from "./session_tree.js";
import { current, kin, me, sessionState } from "./state.js";

/** Sessions followed at once, at most; the server allows 20. */
const AT_MOST = 18;

export class Following {
  /** @param {(frame: object) => boolean} send */
  constructor(send) {
    this.send = send;
    /** Sessions that the server follows for this page. @type {Set<string>} */
    this.followed = new Set();
    /** Sub-sessions whose rows are loaded once, because a view shows their outcome. @type {Set<string>} */
    this.glances = new Set();
  }

  /** Resets after a connect: the server follows nothing yet. */
  reset() {
    this.followed.clear();
    this.fit();
  }

  /** Resets after a sign-out: somebody else may sign in. */
  forget() {
    this.followed.clear();
    this.glances.clear();
  }

  /** Updates the subscriptions to the shown sessions. Called on every possible change; usually there is nothing to do. */
  fit() {
    for (const id of this.glances) if (!kin.value.live.has(id) && this.caughtUp(id)) this.glances.delete(id);
    const wanted = this.wanted();
    for (const id of this.followed) {
      if (wanted.has(id) || (kin.value.byId.get(id)?.lineage && !this.caughtUp(id))) continue;
      this.followed.delete(id);
      this.send({ op: "close", session: id });
    }
    for (const id of wanted) if (!this.followed.has(id) && this.followed.size < AT_MOST) this.open(id);
  }

  /** Returns the wanted sessions; main comes first, so it is always followed. */
  wanted() {
    const ids = new Set([me.value.main, current.value].filter(Boolean));
    for (const id of [...ids]) for (const line of liveBelow(kin.value, id)) ids.add(line.id);
    for (const id of this.glances) ids.add(id);
    return new Set([...ids].slice(0, AT_MOST));
  }

  /** Returns whether all listed rows have arrived: an ended session is unsubscribed only after its last rows. @param {string} id */
  caughtUp(id) {
    const line = kin.value.byId.get(id);
    const { store } = sessionState(id);
    return !line || (store.loaded && store.rev >= line.rev);
  }

  /** Loads the rows of a session that has ended, unless they are here. @param {string} id */
  glance(id) {
    if (this.followed.has(id) || sessionState(id).store.loaded || !kin.value.byId.has(id)) return;
    this.glances.add(id);
    this.fit();
  }

  /** Subscribes to a session, from the rows already here. @param {string} id */
  open(id) {
    const state = sessionState(id);
    this.followed.add(id);
    state.loadingOlder.value = false;
    this.send(this.ask(state));
  }

  /** Returns the `open` frame of a session. @param {import("./state.js").SessionState} state */
  ask(state) {
    state.resuming = state.store.loaded;
    return { op: "open", session: state.id, after: state.store.loaded ? state.store.rev : null };
  }
}
