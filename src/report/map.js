const css = n => getComputedStyle(document.body).getPropertyValue('--' + n);
const points = v => (v > 0 ? '+' : v < 0 ? '−' : '') + Math.abs(v / 10).toFixed(1);
function draw(c) {
  const m = JSON.parse(window[c.id + '-data'].textContent), n = m.labels.length, left = 130;
  const s = Math.max(3, Math.min(28, (c.parentNode.clientWidth - left) / n | 0)), r = devicePixelRatio;
  const w = left + s * n + 2, g = c.getContext('2d'), a = s - (s > 6);
  c.width = w * r; c.height = (s * n + 120) * r; c.style.width = w + 'px';
  g.scale(r, r); g.font = '11px sans-serif'; g.textAlign = 'right';
  const box = (x, y, a, name, alpha = 1) => { g.globalAlpha = alpha; g.fillStyle = css(name); g.fillRect(x, y, a, a); };
  m.cells.forEach((row, i) => row.forEach((v, j) => {
    const x = left + j * s, y = i * s;
    box(x, y, a, v == null ? 'void' : v == 'mixed' ? v : 'zero');
    if (v > 0) box(x, y, a, 'pos', v / m.max);
    if (v < 0) box(x, y, a, 'neg', -v / m.max);
    if (s > 6 && m.low?.[i][j] * m.high?.[i][j] > 0) box(x + a / 2 - 1, y + a / 2 - 1, 2, 'ink');
  }));
  box(0, 0, 0, 'ink');
  for (const [name, start, end] of m.groups) {
    const mid = (start + end) / 2 * s, e = end * s - 1;
    g.fillText(name, left - 6, mid + 4);
    g.save(); g.translate(left + mid + 4, n * s + 10); g.rotate(-1); g.fillText(name, 0, 0); g.restore();
    g.fillRect(left, e, n * s, .6); g.fillRect(left + e, 0, .6, n * s);
  }
  c.onmousemove = e => {
    const j = (e.offsetX - left) / s | 0, i = e.offsetY / s | 0, v = m.cells[i]?.[j];
    if (tip.hidden = v == null || e.offsetX < left) return;
    tip.style = `left:${e.pageX + 14}px;top:${e.pageY + 14}px`;
    tip.textContent = `demonstrated ${m.labels[i]}\nattempted ${m.labels[j]}\n` + (m.names?.[v] ?? `gain ${points(v)}`
      + (m.low[i][j] == null ? '' : ` [${points(m.low[i][j])}, ${points(m.high[i][j])}]`)
      + ` points, ${m.n[i][j]} of ${m.of} seeds graded`);
  };
  c.onmouseleave = () => tip.hidden = true;
}
(onresize = () => document.querySelectorAll('canvas').forEach(draw))();
