import { inkOn, shade } from "../theme.ts";

export interface Cell { row: string; column: string; value: number }

// Matrix is a table of one key against another; a cell is the darker, the more there is.
export function Matrix(p: { caption: string; rowName: string; columnName: string; cells: Cell[]; text(v: number): string; onCell?(c: Cell): void }) {
	const rows = ranked(p.cells, (c) => c.row), columns = ranked(p.cells, (c) => c.column);
	const value = new Map(p.cells.map((c) => [`${c.row}\u0000${c.column}`, c]));
	const most = Math.max(...p.cells.map((c) => c.value), 1e-9);
	return (
		<div class="scroll matrix" role="region" aria-label={p.caption} tabIndex={0}>
			<table>
				<caption class="hidden">{p.caption}</caption>
				<thead><tr><th scope="col">{p.rowName} ╲ {p.columnName}</th>{columns.map((c) => <th key={c} scope="col"><span>{c}</span></th>)}</tr></thead>
				<tbody>
					{rows.map((r) => (
						<tr key={r}>
							<th scope="row">{r}</th>
							{columns.map((c) => {
								const cell = value.get(`${r}\u0000${c}`);
								if (!cell) return <td key={c} />;
								const share = cell.value / most;
								return (
									<td key={c} style={{ background: shade(share) }}>
										<button type="button" class="plain" style={{ color: inkOn(shade(share)) }} title={`${r} → ${c}: ${p.text(cell.value)}`} onClick={() => p.onCell?.(cell)}>{p.text(cell.value)}</button>
									</td>
								);
							})}
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}

function ranked(cells: Cell[], name: (c: Cell) => string): string[] {
	const sums = new Map<string, number>();
	for (const c of cells) sums.set(name(c), (sums.get(name(c)) ?? 0) + c.value);
	return [...sums].sort((a, b) => b[1] - a[1]).map(([n]) => n);
}
