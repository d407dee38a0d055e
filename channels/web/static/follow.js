/** Which sessions the server is asked to keep live here: main, what is shown, and what is at work below either. */
import { liveBelow } from "./kin.js";
import { current, kin, me, sessionState } from "./state.js";

/** Sessions followed at once, at most; the server allows 20. */
const AT_MOST = 18;

export class Following {
  /** @param {(frame: object) => boolean} send */
  constructor(send) {
    this.send = send;
    /** What the server was asked to follow. @type {Set<string>} */
    this.followed = new Set();
    /** Sub-sessions whose rows are wanted once, because a view shows how they ended. @type {Set<string>} */
    this.glances = new Set();
  }

  /** After a connect: the server follows nothing yet. */
  anew() {
    this.followed.clear();
    this.fit();
  }

  /** Somebody else may sign in. */
  forget() {
    this.followed.clear();
    this.glances.clear();
  }

  /** Makes it fit what is shown. Called whenever either may have changed; mostly there is nothing to do. */
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

  /** Main first: whatever else there is, that is live. */
  wanted() {
    const ids = new Set([me.value.main, current.value].filter(Boolean));
    for (const id of [...ids]) for (const line of liveBelow(kin.value, id)) ids.add(line.id);
    for (const id of this.glances) ids.add(id);
    return new Set([...ids].slice(0, AT_MOST));
  }

  /** Whether all that the list knows of is here: a session that has ended is left only after its last rows. @param {string} id */
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

  /** Asks for what is new in a session since what is here, and for all that comes. @param {string} id */
  open(id) {
    const state = sessionState(id);
    this.followed.add(id);
    state.loadingOlder.value = false;
    this.send(this.ask(state));
  }

  /** The frame for that. @param {import("./state.js").SessionState} state */
  ask(state) {
    state.resuming = state.store.loaded;
    return { op: "open", session: state.id, after: state.store.loaded ? state.store.rev : null };
  }
}
