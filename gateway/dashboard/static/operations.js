// Calls operations of the interface. They return JSON or throw a Problem. The status of every response is dispatched as
// `operation-response` on the document.

export class Problem extends Error {
  // `status` is 0 without a response. `retryAfter` is in seconds.
  constructor({ status, detail, code = "", retryAfter = 0, params }) {
    super(detail);
    Object.assign(this, { status, code, retryAfter, params });
  }
}

// Whether the same call may succeed later.
export const isTemporary = ({ status, code }) =>
  status === 0 || status === 429 || (status >= 500 && code !== "transfer_damaged");

const unreachable = () => new Problem({ status: 0, detail: document.getElementById("texts").dataset.failed });

// XMLHttpRequest, because `fetch` does not report upload progress. `onProgress` gets the sent part, 0 to 1.
export const callOperation = (method, address, { headers = {}, body = null, onProgress, signal } = {}) =>
  new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, address);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.setRequestHeader("X-CSRF-Token", document.body.dataset.csrfToken);
    if (onProgress) request.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 0);
    request.onerror = () => reject(unreachable());
    request.onabort = () => reject(signal.reason);
    request.onload = () => {
      document.dispatchEvent(new CustomEvent("operation-response", { detail: request.status }));
      const answer = parsed(request.responseText);
      if (request.status < 300 && answer) return resolve(answer);
      const retryAfter = Number(request.getResponseHeader("Retry-After")) || 0;
      reject(answer ? new Problem({ ...answer, status: request.status, retryAfter }) : unreachable());
    };
    signal?.addEventListener("abort", () => request.abort(), { once: true });
    if (signal?.aborted) return reject(signal.reason);
    request.send(body);
  });

const parsed = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return null; // A proxy answered, not the repository.
  }
};

// The session of a page that was just loaded. `sessionEnds` is in ms of the browser's clock, which may be wrong.
export const sessionOf = ({ csrfToken, sessionSecondsLeft }) => ({ csrfToken, sessionEnds: Date.now() + sessionSecondsLeft * 1000 });

// Take over the current session, possibly a new one of another window. Returns false without a session.
export const renewSession = async () => {
  const body = document.body;
  try {
    const answer = await fetch(body.dataset.home, { headers: { Accept: "text/html" } });
    const { dataset } = new DOMParser().parseFromString(await answer.text(), "text/html").body;
    if (dataset.csrfToken) Object.assign(body.dataset, sessionOf(dataset));
    return Boolean(dataset.csrfToken);
  } catch {
    return false;
  }
};
