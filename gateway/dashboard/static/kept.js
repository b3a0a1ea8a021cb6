// What the browser keeps of the files that it has not sent to their end: { fileId, name, size, modified }, each tenant's
// apart from all others'.

const STORE = `uploads ${document.body.dataset.home}`;

export const kept = () => JSON.parse(localStorage.getItem(STORE) ?? "[]");
const write = (uploads) => localStorage.setItem(STORE, JSON.stringify(uploads));

export const forget = (fileId) => write(kept().filter((upload) => upload.fileId !== fileId));

export const keep = (upload) => {
  forget(upload.fileId);
  write([...kept(), upload]);
};

// Whether a file that was chosen is one of those.
export const isSame = (file) => (upload) =>
  upload.name === file.name && upload.size === file.size && upload.modified === file.lastModified;
