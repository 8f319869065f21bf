// Fills the list of versions in the side bar: each leads to the page that is shown, where that version has it.
"use strict";

(() => {
  const list = document.querySelector(".versions ul");
  const all = window.weighbridgeVersions;
  if (!list || !all) {
    return;
  }
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  const own = decodeURIComponent(root.pathname).split("/").at(-2);
  const page = decodeURIComponent(location.pathname.slice(root.pathname.length)) || "index.html";
  const items = all.map(({ version, pages }) => {
    const link = document.createElement("a");
    link.href = new URL(`../${version}/${pages.includes(page) ? page : "index.html"}`, root).href;
    link.textContent = version;
    if (version === own) {
      link.setAttribute("aria-current", "true");
    }
    const item = document.createElement("li");
    item.append(link);
    return item;
  });
  list.replaceChildren(...items);
})();
