// The page of the clients, whose tokens are shown in place, once.
//   data-issues="name"          an operation that answers a client's token; without a name it is the one of the form
//   data-issued="text"          within #issued: what is shown, `{token}` being the token
//   data-deletes="address"      a client is deleted by its token, which nobody has any more: it is given another first
//   data-undeleted="text"       of the list: what is told where that came to pass and the deletion did not, `{name}` being
//                               the client's; data-again is what the button says that tries again

import { ask } from "./asking.js";
import { go, say } from "./dashboard.js";

const show = (name, token) => {
  const place = document.getElementById("issued");
  place.querySelector("[data-issued-name]").textContent = name;
  for (const code of place.querySelectorAll("[data-issued]")) {
    code.textContent = code.dataset.issued.replace("{token}", token);
    code.closest(".copyable").querySelector("[data-copy]").dataset.copy = code.textContent;
  }
  place.hidden = false;
  place.focus();
};

// The list alone, so that the token stays.
const renew = () => htmx.ajax("GET", location.href, { target: "#clients", select: "#clients", swap: "outerHTML" });

// By the token in hand: to begin anew would need a third one.
const remove = async (address, name, done) => {
  const list = () => document.getElementById("clients");
  list().querySelector("[data-problem]").textContent = "";
  try {
    await ask("DELETE", address);
    go(location.href);
    say(done);
  } catch (problem) {
    if (problem.code === "client_not_found") return go(location.href); // An answer was lost on the way: the list tells.
    const place = list()?.querySelector("[data-problem]");
    if (!place) return; // Another page is open by now.
    const { undeleted, again } = list().dataset;
    const button = Object.assign(document.createElement("button"), { type: "button", className: "small", textContent: again });
    button.onclick = () => remove(address, name, done);
    place.replaceChildren(undeleted.replace("{name}", name), " ", problem.message, " ", button);
    button.focus();
  }
};

document.addEventListener("operation", (event) => {
  const { target, detail } = event;
  const { issues, deletes } = target.dataset;
  if (deletes !== undefined) {
    event.preventDefault();
    remove(`${deletes}/${detail.auth_token}`, target.dataset.confirm, target.closest("tr").dataset.done);
  } else if (issues !== undefined) {
    event.preventDefault();
    show(issues || new FormData(target).get("client_name"), detail.auth_token);
    if (target.matches("form")) target.reset();
    renew();
  }
});
