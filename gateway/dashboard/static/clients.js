// The page of the clients, whose tokens are shown in place, once.
//   data-issues="name"          an operation that answers a client's token; without a name it is the one of the form
//   data-issued="text"          within #issued: what is shown, `{token}` being the token
//   data-deletes="address"      a client is deleted by its token, which nobody has any more: it is given another first

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

document.addEventListener("operation", (event) => {
  const { target, detail } = event;
  const { issues, deletes } = target.dataset;
  if (deletes !== undefined) {
    event.preventDefault();
    htmx.ajax("DELETE", `${deletes}/${detail.auth_token}`, { source: target.closest("tr"), swap: "none" });
  } else if (issues !== undefined) {
    event.preventDefault();
    show(issues || new FormData(target).get("client_name"), detail.auth_token);
    if (target.matches("form")) target.reset();
    renew();
  }
});
