/** WebSocket connection with reconnect and backoff. Passes frames to actions.js without interpreting them. */

import { loadKey } from "./storage.js";

const PAUSES = [400, 1000, 2000, 4000, 8000, 15000];
/** Timeout in ms for an answer. */
const PATIENCE = 10_000;
/** Slowest assumed line, in bytes per ms; unsent data delays the answer. */
const SLOWEST = 5;

/**
 * @typedef {object} WireEvents
 * @property {(frame: any) => void} frame
 * @property {(state: "connecting"|"open"|"offline", retryAt: number) => void} state
 * @property {() => Promise<boolean>} mayConnect  false without a sign-in: the wire then stays down
 */

export class Wire {
  /** @param {string} url @param {WireEvents} events */
  constructor(url, events) {
    this.url = url;
    this.events = events;
    /** @type {WebSocket|null} */
    this.socket = null;
    this.failures = 0;
    this.timer = 0;
    this.probe = 0;
    this.down = true;
    addEventListener("online", () => this.retryNow());
    addEventListener("offline", () => this.drop());
  }

  /** Starts, or starts again. */
  up() {
    this.down = false;
    this.failures = 0;
    this.connect();
  }

  /** Disconnects until `up`. */
  end() {
    this.down = true;
    clearTimeout(this.timer);
    this.forget();
  }

  /** @param {object} frame @returns {boolean} false when there is no connection: the frame is not kept */
  send(frame) {
    if (!this.socket || this.socket.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  /** Reconnects without waiting for the backoff. */
  retryNow() {
    if (this.down || (this.socket && this.socket.readyState <= WebSocket.OPEN)) return;
    clearTimeout(this.timer);
    this.connect();
  }

  /**
   * Sends a frame that must be answered, and reconnects without an answer: an open socket may be dead.
   * @param {object} frame
   */
  check(frame) {
    if (!this.send(frame)) return this.retryNow();
    const before = (this.socket?.bufferedAmount ?? 0) / SLOWEST;
    clearTimeout(this.probe);
    this.probe = setTimeout(() => this.drop(), PATIENCE + before);
  }

  /** Drops the connection and schedules the next. */
  drop() {
    if (this.down) return;
    this.forget();
    this.plan();
  }

  forget() {
    const socket = this.socket;
    this.socket = null;
    clearTimeout(this.probe);
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  connect() {
    clearTimeout(this.timer);
    const socket = new WebSocket(this.url, ["dragoman", loadKey()]);
    this.socket = socket;
    this.timer = setTimeout(() => this.drop(), 10_000);
    socket.onopen = () => {
      clearTimeout(this.timer);
      this.failures = 0;
      this.events.state("open", 0);
    };
    socket.onmessage = (event) => {
      clearTimeout(this.probe);
      this.events.frame(JSON.parse(event.data));
    };
    socket.onclose = () => {
      this.socket = null;
      this.plan();
    };
  }

  plan() {
    clearTimeout(this.timer);
    const pause = PAUSES[Math.min(this.failures, PAUSES.length - 1)] * (0.8 + Math.random() * 0.4);
    this.failures += 1;
    this.events.state("offline", Date.now() + pause);
    const timer = setTimeout(async () => {
      const may = await this.events.mayConnect();
      // Meanwhile the person may have reconnected by hand.
      if (!this.down && may && this.timer === timer) this.connect();
    }, pause);
    this.timer = timer;
  }
}
