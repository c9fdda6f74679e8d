// Shows how much of an upload is sent, and takes files that are dropped on the page. The form works without it, too.
"use strict";
const form = document.querySelector("form.upload");

function sizeOf(files) {
  return Array.from(files).reduce((sum, file) => sum + file.size, 0);
}

function send(event) {
  const [bar, said, button] = ["progress", ".said", "button"].map((each) => form.querySelector(each));
  const files = form.elements.files.files;
  event.preventDefault();
  if (sizeOf(files) > Number(form.dataset.most)) {
    said.textContent = "That is more than is taken at once: use rsync or scp.";
    return;
  }
  const request = new XMLHttpRequest();
  request.upload.addEventListener("progress", (sent) => {
    bar.value = sent.total ? sent.loaded / sent.total : 0;
    said.textContent = bar.value < 1 ? `${Math.floor(100 * bar.value)} % sent` : "All is sent; it is being stored.";
  });
  request.addEventListener("load", () => {
    if (request.status < 400) {
      window.location.assign(request.responseURL);
      return;
    }
    const page = new DOMParser().parseFromString(request.responseText, "text/html");
    const alert = page.querySelector("[role=alert]");
    finish(alert ? alert.textContent : `It was refused (${request.status}): load the page again.`);
  });
  request.addEventListener("error", () => finish("The connection was cut, and nothing was stored: try again."));
  function finish(text) {
    said.textContent = text;
    bar.hidden = true;
    button.disabled = false;
  }
  bar.hidden = false;
  button.disabled = true;
  request.open("POST", form.action);
  request.send(new FormData(form));
}

if (form) {
  form.addEventListener("submit", send);
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) {
      form.closest("details").open = true;
      form.elements.files.files = event.dataTransfer.files;
      form.querySelector("button").focus();
    }
  });
}
