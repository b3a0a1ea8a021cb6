// The upload of one file in chunks, from the offset that the repository reports.
//
// Dispatches `change` after every change. `state` is one of
//   waiting      in the queue
//   sending
//   retrying     the repository is unavailable or busy; the next attempt is at `retryAt` (ms since 1970)
//   paused
//   signed-out   the session has ended; `start` resumes in the next session
//   failed       `problem` is the message
//   cancelled    by another window or client
//   complete     `serverFilename` and `sha256` are the repository's

import { callOperation, isTemporary, Problem, renewSession } from "./operations.js";

const MIN_CHUNK = 256 << 10; // bytes
const DELAYS = [500, 20_000]; // ms between attempts, the first and the longest
const SAMPLE = 400; // ms of a speed measurement

export class Transfer extends EventTarget {
  state = "waiting";
  sent = 0;
  speed = 0; // bytes a second
  retryAt = 0;
  problem = "";
  code = ""; // of the problem
  serverFilename = "";
  sha256 = "";
  #run = null; // an AbortController while active
  #sample = [0, 0]; // [time in ms, sent bytes]

  // `missing` is the message for a changed or deleted file.
  constructor(file, fileId, { address, chunkSize, missing }) {
    super();
    Object.assign(this, { file, fileId, address, chunkSize, missing });
  }

  // Start or resume.
  async start() {
    this.#run?.abort();
    const run = (this.#run = new AbortController());
    this.#become("sending", { problem: "", code: "", speed: 0 });
    try {
      const { server_filename: serverFilename, sha256 } = await this.#send(run.signal);
      this.#become("complete", { serverFilename, sha256, sent: this.file.size });
    } catch (problem) {
      if (run.signal.aborted) return; // The caller of `abort` has set the state.
      if (!(problem instanceof Problem)) throw problem;
      let state = "failed";
      if (problem.status === 401) state = "signed-out";
      if (problem.code === "transfer_cancelled") state = "cancelled";
      this.#become(state, { problem: problem.message, code: problem.code });
    }
  }

  // Pause. The repository keeps the received bytes.
  stop(state = "paused") {
    this.#run?.abort();
    this.#become(state);
  }

  async #send(signal) {
    let state = await this.#retry(signal, () => this.#state(signal));
    while (!state.complete) {
      let known = state;
      state = await this.#retry(signal, async () => {
        const before = known ?? (await this.#state(signal));
        known = null; // After a failed attempt, only the repository knows the offset.
        return before.complete ? before : this.#sendFrom(before.received, signal);
      });
    }
    return state;
  }

  async #state(signal) {
    try {
      return await callOperation("GET", this.address, { signal, headers: { "X-File-ID": this.fileId } });
    } catch (problem) {
      if (problem.code === "transfer_not_found") return { received: 0, complete: false };
      throw problem;
    }
  }

  async #sendFrom(start, signal) {
    const end = Math.min(start + this.chunkSize, this.file.size);
    this.#at(start);
    const body = new FormData();
    body.append("chunk", this.file.slice(start, end), this.file.name);
    const headers = { "X-File-ID": this.fileId, "Content-Range": `bytes ${start}-${end - 1}/${this.file.size}` };
    try {
      const state = await callOperation("POST", this.address, {
        signal,
        headers,
        body,
        onProgress: (part) => this.#at(start + (end - start) * part),
      });
      this.#at(end);
      return state;
    } catch (problem) {
      if (problem.code === "unexpected_chunk") {
        // Another window uploads the same file, or a response was lost.
        const state = await this.#state(signal);
        if (state.received === start && !state.complete) throw problem;
        return state;
      }
      if (problem.status === 0 && !(await isReadable(this.file, start))) throw new Problem({ status: 400, detail: this.missing });
      // The repository stores complete chunks only. Smaller chunks succeed on an unstable network.
      if (problem.status === 0 || (problem.code === "invalid_request" && this.chunkSize > MIN_CHUNK)) {
        this.chunkSize = Math.max(Math.min(MIN_CHUNK, this.chunkSize), this.chunkSize >> 1);
        throw new Problem({ ...problem, status: 0, detail: problem.message });
      }
      throw problem;
    }
  }

  // Repeat an attempt until it succeeds or fails permanently.
  async #retry(signal, attempt) {
    for (let attempts = 0, renewals = 0; ; attempts++) {
      try {
        return await attempt();
      } catch (problem) {
        signal.throwIfAborted();
        if (problem.status === 403 && !renewals++ && (await renewSession())) continue; // New sign-in in another window.
        if (!isTemporary(problem)) throw problem;
        const [first, longest] = DELAYS;
        const delay = Math.max(problem.retryAfter * 1000, Math.min(longest, first * 2 ** attempts) * (0.75 + Math.random() / 2));
        this.#become("retrying", { retryAt: Date.now() + delay, problem: problem.message, speed: 0 });
        await wait(delay, signal);
        this.#become("sending", { problem: "" });
      }
    }
  }

  #at(sent) {
    const now = performance.now();
    const [when, before] = this.#sample;
    if (sent < before || now - when > 10 * SAMPLE) this.#sample = [now, sent];
    else if (now - when > SAMPLE) {
      const speed = ((sent - before) / (now - when)) * 1000;
      this.speed = this.speed ? 0.7 * this.speed + 0.3 * speed : speed;
      this.#sample = [now, sent];
    }
    this.#become("sending", { sent });
  }

  #become(state, values = {}) {
    Object.assign(this, values, { state });
    this.dispatchEvent(new Event("change"));
  }
}

// Delete an incomplete upload in the repository. Unknown and complete uploads are ignored.
export const cancelTransfer = async (address, fileId) => {
  try {
    await callOperation("DELETE", address, { headers: { "X-File-ID": fileId } });
  } catch (problem) {
    if (!["transfer_not_found", "transfer_complete"].includes(problem.code)) throw problem;
  }
};

// Browsers cannot read a file that changed after its selection.
const isReadable = (file, start) =>
  file.slice(start, start + 1).arrayBuffer().then(() => true, () => false);

// Wait for some ms, or until the browser is online again. Throws the reason of an aborted `signal`.
const wait = (delay, signal) =>
  new Promise((resolve, reject) => {
    const end = (settle) => () => {
      clearTimeout(timer);
      removeEventListener("online", go);
      signal.removeEventListener("abort", stop);
      settle();
    };
    const go = end(resolve);
    const stop = end(() => reject(signal.reason));
    const timer = setTimeout(go, delay);
    addEventListener("online", go);
    signal.addEventListener("abort", stop);
  });
