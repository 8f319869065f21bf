const root = document.documentElement;
const theme = document.createElement("button");
theme.type = "button";
theme.className = "theme";
theme.textContent = "Light / dark";
theme.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
document.querySelector("header").append(theme);
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        const order = x !== "" && y !== "" && !isNaN(x) && !isNaN(y) ? x - y : x.localeCompare(y);
        return up ? order : -order;
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(compare));
    });
  });
}
