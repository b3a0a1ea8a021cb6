// One file on its way into the repository: chunk by chunk, in order, from wherever the repository says that it stands.
//
// Dispatches `change` whenever something about it is another. `state` is one of
//   waiting      for its turn, or to be resumed
//   sending
//   away         the repository does not answer, or is busy: tried again by itself at `retryAt` (ms since 1970)
//   paused
//   signed-out   the session has ended; goes on when `start` is called in the next one
//   failed       `problem` says why, in words
//   cancelled    by another window, or by a client of the interface
//   complete     `serverFilename` and `sha256` are the repository's

import { ask, mayPass, Problem, renewed } from "./asking.js";

const SMALLEST = 256 << 10; // bytes of the chunks over a line that breaks again and again
const PAUSES = [500, 20_000]; // ms between two tries, the first and the longest
const SAMPLE = 400; // ms that a speed is measured over

export class Transfer extends EventTarget {
  state = "waiting";
  sent = 0;
  speed = 0; // bytes a second
  retryAt = 0;
  problem = "";
  code = ""; // of the problem, as the interface has it
  serverFilename = "";
  sha256 = "";
  #run = null; // an AbortController while it runs
  #sample = [0, 0]; // when, and how many bytes were sent then

  // `missing` is what is told of a file that was changed or taken away.
  constructor(file, fileId, { address, chunkSize, missing }) {
    super();
    Object.assign(this, { file, fileId, address, chunkSize, missing });
  }

  // Begin, or go on.
  async start() {
    this.#run?.abort();
    const run = (this.#run = new AbortController());
    this.#become("sending", { problem: "", code: "", speed: 0 });
    try {
      const { server_filename: serverFilename, sha256 } = await this.#send(run.signal);
      this.#become("complete", { serverFilename, sha256, sent: this.file.size });
    } catch (problem) {
      if (run.signal.aborted) return; // Whoever ended it has said what it is now.
      if (!(problem instanceof Problem)) throw problem;
      let state = "failed";
      if (problem.status === 401) state = "signed-out";
      if (problem.code === "transfer_cancelled") state = "cancelled";
      this.#become(state, { problem: problem.message, code: problem.code });
    }
  }

  // Stop for now. The repository keeps what it has.
  stop(state = "paused") {
    this.#run?.abort();
    this.#become(state);
  }

  async #send(signal) {
    let state = await this.#patiently(signal, () => this.#state(signal));
    while (!state.complete) {
      let known = state;
      state = await this.#patiently(signal, async () => {
        const before = known ?? (await this.#state(signal));
        known = null; // After a try that failed only the repository knows.
        return before.complete ? before : this.#sendFrom(before.received, signal);
      });
    }
    return state;
  }

  async #state(signal) {
    try {
      return await ask("GET", this.address, { signal, headers: { "X-File-ID": this.fileId } });
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
      const state = await ask("POST", this.address, {
        signal,
        headers,
        body,
        onProgress: (part) => this.#at(start + (end - start) * part),
      });
      this.#at(end);
      return state;
    } catch (problem) {
      if (problem.code === "unexpected_chunk") {
        // Another window sends the same file, or an answer was lost: the repository stands elsewhere.
        const state = await this.#state(signal);
        if (state.received === start && !state.complete) throw problem;
        return state;
      }
      if (problem.status === 0 && !(await isReadable(this.file, start))) throw new Problem({ status: 400, detail: this.missing });
      // A chunk is kept whole or not at all: on a line that breaks, smaller ones get through. Where even the smallest
      // cannot be understood it is not the line.
      if (problem.status === 0 || (problem.code === "invalid_request" && this.chunkSize > SMALLEST)) {
        this.chunkSize = Math.max(Math.min(SMALLEST, this.chunkSize), this.chunkSize >> 1);
        throw new Problem({ ...problem, status: 0, detail: problem.message });
      }
      throw problem;
    }
  }

  // Try until it succeeds, or cannot.
  async #patiently(signal, attempt) {
    for (let tries = 0, renewals = 0; ; tries++) {
      try {
        return await attempt();
      } catch (problem) {
        signal.throwIfAborted();
        if (problem.status === 403 && !renewals++ && (await renewed())) continue; // Signed in anew in another window.
        if (!mayPass(problem)) throw problem;
        const [first, longest] = PAUSES;
        const pause = Math.max(problem.retryAfter * 1000, Math.min(longest, first * 2 ** tries) * (0.75 + Math.random() / 2));
        this.#become("away", { retryAt: Date.now() + pause, problem: problem.message, speed: 0 });
        await later(pause, signal);
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

// Let the repository drop what it has of a file. Of one that it has nothing of, or all, there is nothing to drop.
export const giveUp = async (address, fileId) => {
  try {
    await ask("DELETE", address, { headers: { "X-File-ID": fileId } });
  } catch (problem) {
    if (!["transfer_not_found", "transfer_complete"].includes(problem.code)) throw problem;
  }
};

// A browser gives nothing of a file that is another than the one that was chosen.
const isReadable = (file, start) =>
  file.slice(start, start + 1).arrayBuffer().then(() => true, () => false);

// After so many ms, or as soon as the browser has a network again. Throws what `signal` was aborted with.
const later = (pause, signal) =>
  new Promise((resolve, reject) => {
    const end = (settle) => () => {
      clearTimeout(timer);
      removeEventListener("online", go);
      signal.removeEventListener("abort", stop);
      settle();
    };
    const go = end(resolve);
    const stop = end(() => reject(signal.reason));
    const timer = setTimeout(go, pause);
    addEventListener("online", go);
    signal.addEventListener("abort", stop);
  });
