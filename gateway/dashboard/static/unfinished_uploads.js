// The uploads that this browser has not completed, in localStorage by tenant: { fileId, name, size, modified }.

const STORE = `uploads ${document.body.dataset.home}`;

export const unfinishedUploads = () => JSON.parse(localStorage.getItem(STORE) ?? "[]");
const write = (uploads) => localStorage.setItem(STORE, JSON.stringify(uploads));

export const removeUpload = (fileId) => write(unfinishedUploads().filter((upload) => upload.fileId !== fileId));

export const saveUpload = (upload) => {
  removeUpload(upload.fileId);
  write([...unfinishedUploads(), upload]);
};

// Whether a selected file is the file of an upload.
export const isSameFile = (file) => (upload) =>
  upload.name === file.name && upload.size === file.size && upload.modified === file.lastModified;
