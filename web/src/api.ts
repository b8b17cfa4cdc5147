// Asks the agent, with the API that the command line uses, too.

// Refusal is what the API says where it cannot answer: what is wrong, and what to do.
export class Refusal extends Error {
	readonly what: string;
	readonly how: string;
	readonly status: number;
	constructor(what: string, how: string, status: number) {
		super(how ? `${what}; ${how}` : what);
		this.what = what;
		this.how = how;
		this.status = status;
	}
}

const unreachable = "check that it runs: systemctl status waymark";

export type Params = Record<string, string | number | boolean | undefined>;

// address is the path with parameters, those without value left out.
export function address(path: string, params: Params = {}): string {
	const search = new URLSearchParams();
	for (const [name, value] of Object.entries(params)) {
		if (value !== undefined && value !== "" && value !== false) search.set(name, String(value));
	}
	const text = search.toString();
	return text ? `${path}?${text}` : path;
}

export async function get<T>(path: string, params: Params = {}, signal?: AbortSignal): Promise<T> {
	let response: Response;
	try {
		response = await fetch(address(path, params), { signal, headers: { accept: "application/json" } });
	} catch (e) {
		if (signal?.aborted) throw e;
		throw new Refusal("The agent does not answer", unreachable, 0);
	}
	const text = await response.text();
	let body: unknown;
	try {
		body = JSON.parse(text);
	} catch {
		throw new Refusal(text.slice(0, 200) || `The answer has status ${response.status}`, unreachable, response.status);
	}
	if (response.ok) return body as T;
	const { what, how } = body as { what?: string; how?: string };
	throw new Refusal(what ?? `The answer has status ${response.status}`, how ?? "", response.status);
}
