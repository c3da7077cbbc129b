// The exact optimum from the hulls of all classes: edges by what they save per dollar, until the money is spent.

function edgesOf(doc, { minutes = 0, price = 1, load = 1 } = {}) {
  const start = doc.starts.find((one) => one.minutes === minutes) ?? doc.starts[0];
  const edges = [];
  let spend = 0, hours = 0;
  start.groups.forEach((group, g) => {
    const { arrivals_per_hour: rate, weight } = doc.classes[group.class];
    const cost = (vertex) => rate * load * price * vertex.spend;
    spend += cost(group.hull[0]);
    hours += rate * load * weight * group.hull[0].hours;
    for (let i = 1; i < group.hull.length; i++) {
      const more = cost(group.hull[i]) - cost(group.hull[i - 1]);
      const saved = rate * load * weight * (group.hull[i - 1].hours - group.hull[i].hours);
      edges.push({ g, i, more, saved, slope: saved / more });
    }
  });
  // Edges of one hull have falling slopes, so a stable sort keeps their order.
  edges.sort((a, b) => b.slope - a.slope);
  const weighted = doc.classes.reduce((sum, one) => sum + one.arrivals_per_hour * load * one.weight, 0);
  return { start, edges, spend, hours, weighted };
}

function curvePoints(doc, settings) {
  const found = edgesOf(doc, settings);
  let { spend, hours } = found;
  const points = [[spend, hours / found.weighted]];
  for (const edge of found.edges) points.push([(spend += edge.more), (hours -= edge.saved) / found.weighted]);
  return points;
}

function solve(doc, budget, settings = {}) {
  const { start, edges, spend: least, hours: most, weighted } = edgesOf(doc, settings);
  const price = settings.price ?? 1;
  if (budget < least * (1 - 1e-9)) return { isFeasible: false, least };
  const at = start.groups.map(() => 0);
  let spend = least, hours = most, mixed = null;
  for (const edge of edges) {
    const part = Math.min(1, (budget - spend) / edge.more);
    if (part <= 0) break;
    spend += part * edge.more;
    hours -= part * edge.saved;
    if (part < 1) { mixed = { group: edge.g, vertex: edge.i, part }; break; }
    at[edge.g] = edge.i;
  }
  const classes = doc.classes.map((one) => ({ ...one, hours: 0, spend: 0, widths: [] }));
  start.groups.forEach((group, g) => {
    const mine = classes[group.class], base = group.hull[at[g]];
    const part = mixed && mixed.group === g ? mixed.part : 0;
    const other = part ? group.hull[mixed.vertex] : base;
    mine.hours += (1 - part) * base.hours + part * other.hours;
    mine.spend += ((1 - part) * base.spend + part * other.spend) * price;
    const said = part ? `${base.label} (${Math.round(100 * (1 - part))} % of jobs) or ${other.label} (${Math.round(100 * part)} %)` : base.label;
    if (mine.widths.at(-1) !== said) mine.widths.push(said);
  });
  return { isFeasible: true, least, spend, hours: hours / weighted, classes };
}

const hoursAt = (points, budget) => {
  if (budget <= points[0][0]) return points[0][1];
  for (let i = 1; i < points.length; i++) {
    const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
    if (budget <= x1) return x1 > x0 ? y0 + ((y1 - y0) * (budget - x0)) / (x1 - x0) : y1;
  }
  return points.at(-1)[1];
};
