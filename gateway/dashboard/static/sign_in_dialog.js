// The sign-in over a page whose session has ended. What is typed in the page stays.

import { startSession } from "./session.js";

const dialog = () => document.getElementById("sign-in");

let waiting = null; // for the sign-in; all requests of a page wait for one

// Returns whether there is a session again: of this dialog, or of another window, such as that of the company login.
export const signIn = () => (waiting ??= show().finally(() => (waiting = null)));

const show = () =>
  new Promise((resolve) => {
    const place = dialog();
    if (!place.querySelector("form")) place.append(place.querySelector("template").content.cloneNode(true));
    const finish = () => place.close("yes");
    place.onclose = () => {
      document.removeEventListener("session", finish);
      resolve(place.returnValue === "yes");
    };
    place.querySelector("[data-cancel]").onclick = () => place.close("");
    document.addEventListener("session", finish);
    place.returnValue = "";
    place.showModal();
    place.querySelector("[type=password], a")?.focus();
  });

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("#sign-in form")) return;
  event.preventDefault();
  const problem = form.querySelector("[data-problem]");
  const { failed } = document.getElementById("texts").dataset;
  try {
    const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const isSignedIn = Boolean(page.body.dataset.csrfToken);
    problem.textContent = isSignedIn ? "" : (page.getElementById("problem")?.textContent ?? failed);
    if (isSignedIn) startSession(page.body.dataset);
  } catch {
    problem.textContent = failed;
  }
  form.elements.password.value = "";
  if (problem.textContent) form.elements.password.focus();
});
