// Compare: policies on the same jobs, for about the same money; of `boa compare` and `boa demo`.

const compare = {
  title: "Compare", every: 0,
  load: () => ask("page/compare"),
  draw(doc) {
    return [el("h1", {}, doc.title), doc.sentences.map((sentence) => el("p", { class: "whole" }, sentence)), el("div", { class: "grid" }, doc.groups.map((group) => {
      const longest = Math.max(...group.rows.map((row) => row.mean_jct_hours));
      return card(group.name, "", table([
        ["policy", (row) => row.policy, "id"], ["mean time a job", (row) => span(row.mean_jct_hours * 3600), "n"],
        ["", (row) => svg("svg", { class: "strip thinstrip", viewBox: "0 0 200 10", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: row.isMine ? "f0" : "f7", width: 200 * (row.mean_jct_hours / longest), height: 10 }))],
        ["p95", (row) => span(row.p95_jct_hours * 3600), "n"], ["spent per hour", (row) => (row.usd_per_hour === null ? "–" : doc.unit === "gpus" ? number(row.usd_per_hour, 1) : usd(row.usd_per_hour)), "n"],
        ["times as long", (row) => (row.ratio === null ? "" : number(row.ratio, 2)), "n"]], group.rows, group.name),
        group.bound ? el("p", { class: "why" }, `No policy can take less than ${span(group.bound * 3600)} for that money.`) : null);
    }))];
  },
};
