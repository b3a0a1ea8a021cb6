// Operations of the interface, asked by scripts: JSON comes back, or a Problem is thrown. The status of every answer is
// dispatched as `asked` on the document.

export class Problem extends Error {
  // `status` 0: there was no answer. `retryAfter` is in seconds.
  constructor({ status, detail, code = "", retryAfter = 0 }) {
    super(detail);
    Object.assign(this, { status, code, retryAfter });
  }
}

// Whether the same may succeed later, without anyone's doing.
export const mayPass = ({ status, code }) =>
  status === 0 || status === 429 || (status >= 500 && code !== "transfer_damaged");

const unreachable = () => new Problem({ status: 0, detail: document.getElementById("texts").dataset.failed });

// By XMLHttpRequest: `fetch` does not tell how much of a body is sent. `onProgress` is told the part, 0 to 1.
export const ask = (method, address, { headers = {}, body = null, onProgress, signal } = {}) =>
  new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, address);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.setRequestHeader("X-CSRF-Token", document.body.dataset.csrfToken);
    if (onProgress) request.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 0);
    request.onerror = () => reject(unreachable());
    request.onabort = () => reject(signal.reason);
    request.onload = () => {
      document.dispatchEvent(new CustomEvent("asked", { detail: request.status }));
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
    return null; // Something on the way answers, and not the repository.
  }
};

// The session of a page that came just now; `sessionEnds` is in ms by the browser's own clock, which may be a wrong one.
export const sessionOf = ({ csrfToken, sessionLasts }) => ({ csrfToken, sessionEnds: Date.now() + sessionLasts * 1000 });

// Whether there is a session, possibly a new one of another window's; if so this page is from now on a page of it.
export const renewed = async () => {
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
