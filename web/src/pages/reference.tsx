import { needReference } from "../data.ts";
import { Notice, Waiting } from "../parts/notice.tsx";
import { change, href, params } from "../route.ts";
import { bindings } from "../keys.ts";
import { kindName } from "../verdicts.ts";

interface Entry { section: string; name: string; more?: string; doc: string; link?: string }

// entries are everything that queries and answers are made of.
function entries(): Entry[] {
	const r = needReference();
	if (!r) return [];
	return [
		...r.filters.map((f) => ({ section: "Filters", name: f.name, more: [...f.aliases, f.example].filter(Boolean).join(", "), doc: f.doc })),
		...r.keys.map((k) => ({ section: "Keys to group by", name: k.name, doc: k.doc, link: href("/explore", { by: k.name }) })),
		...r.numbers.map((n) => ({ section: "Numbers to sort by and to draw", name: n.name, more: n.path === n.name ? n.unit : `${n.path}, ${n.unit}`, doc: n.doc, link: href("/explore", { sort: n.name, show: n.sum ? undefined : "lines" }) })),
		...r.verdicts.map((v) => ({ section: "Verdicts", name: v.name, more: kindName(v.name), doc: `Says ${v.doc}. Inputs: ${v.inputs}. Threshold: ${v.threshold}.` })),
		...r.parameters.map((x) => ({ section: "Parameters of /api/v1/flows", name: x.name, doc: x.doc })),
		...r.paths.map((x) => ({ section: "Paths of the API", name: x.name, doc: x.doc })),
		...bindings.value.map((b) => ({ section: "Keys of the keyboard", name: b.keys, doc: b.doc })),
	];
}

// Reference is what the words mean, without leaving the host.
export function Reference() {
	const find = params.value.find ?? "", word = find.toLowerCase();
	const all = entries();
	const found = all.filter((e) => `${e.name} ${e.more ?? ""} ${e.doc}`.toLowerCase().includes(word));
	const sections = [...new Set(found.map((e) => e.section))];
	return (
		<div class="page reference">
			<div class="headline"><h1>Reference</h1><p class="muted">The words of filters, commands, answers and this console.</p></div>
			<form role="search" onSubmit={(e) => e.preventDefault()}>
				<input id="filter" type="search" value={find} placeholder="Find a word" aria-label="Find a word" onInput={(e) => change({ find: e.currentTarget.value || undefined }, true)} />
			</form>
			{all.length === 0 ? <Waiting what="Asking the agent" /> : found.length === 0 && <Notice title={`Nothing has the word ${find}`}><button type="button" class="link" onClick={() => change({ find: undefined })}>Show everything</button></Notice>}
			{sections.map((s) => (
				<section key={s} class="card" aria-label={s}>
					<h2>{s}</h2>
					<dl class="entries">
						{found.filter((e) => e.section === s).map((e) => (
							<div key={e.name}><dt>{e.link ? <a href={e.link}><code>{e.name}</code></a> : <code>{e.name}</code>}{e.more && <span>{e.more}</span>}</dt><dd>{plain(e.doc)}</dd></div>
						))}
					</dl>
				</section>
			))}
		</div>
	);
}

// plain takes away the marks of Markdown.
function plain(text: string): string {
	return text.replace(/\[([^\]]+)\]\([^)]*\)/g, "$1").replace(/`/g, "");
}
