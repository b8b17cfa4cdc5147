import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";

export interface Column<T> {
	name: string;
	title: string; // what it is, in full
	cell(row: T): ComponentChildren;
	right?: boolean; // of a number
	sort?: string; // parameter that sorts by it
	narrow?: boolean; // left out on a narrow screen
}

interface Props<T> {
	caption: string;
	columns: Column<T>[];
	rows: T[];
	id(row: T): string;
	sorted?: string;
	onSort?(by: string): void;
	onOpen?(row: T): void;
	foot?: ComponentChildren;
}

// Table is a table whose rows can be reached with j and k, or the arrows, and opened with Enter.
export function Table<T>(p: Props<T>) {
	const body = useRef<HTMLTableSectionElement>(null);
	const move = (from: HTMLElement, by: number) => {
		const rows = [...(body.current?.querySelectorAll<HTMLElement>("tr[tabindex]") ?? [])];
		rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(from) + by))]?.focus();
	};
	const key = (e: KeyboardEvent, row: T) => {
		const tr = e.currentTarget as HTMLElement;
		if (e.target !== tr && e.key === "Enter") return;
		const run: Record<string, () => void> = {
			j: () => move(tr, 1), ArrowDown: () => move(tr, 1), k: () => move(tr, -1), ArrowUp: () => move(tr, -1),
			Enter: () => p.onOpen?.(row),
		};
		const f = run[e.key];
		if (!f) return;
		e.preventDefault();
		f();
	};
	return (
		<div class="scroll" role="region" aria-label={`Table: ${p.caption}`} tabIndex={0}>
			<table>
				<caption class="hidden">{p.caption}</caption>
				<thead>
					<tr>
						{p.columns.map((c) => (
							<th key={c.name} scope="col" class={cls(c)} title={c.title} aria-sort={c.sort && c.sort === p.sorted ? "descending" : undefined}>
								{c.sort && p.onSort ? <button type="button" class="plain" onClick={() => p.onSort!(c.sort!)}>{c.name}{c.sort === p.sorted ? " ▾" : ""}</button> : c.name}
							</th>
						))}
					</tr>
				</thead>
				<tbody ref={body}>
					{p.rows.map((row) => (
						<tr key={p.id(row)} tabIndex={p.onOpen ? 0 : undefined} onKeyDown={(e) => key(e, row)} onDblClick={() => p.onOpen?.(row)}>
							{p.columns.map((c) => <td key={c.name} class={cls(c)}>{c.cell(row)}</td>)}
						</tr>
					))}
				</tbody>
				{p.foot && <tfoot>{p.foot}</tfoot>}
			</table>
		</div>
	);
}

function cls(c: { right?: boolean; narrow?: boolean }): string {
	return `${c.right ? "right" : ""} ${c.narrow ? "wide-only" : ""}`.trim();
}
