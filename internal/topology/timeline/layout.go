package timeline

// deepest is the number of tiers.
const deepest = 32

// arrange gives each node its place: its tier is the longest way to it from the network, its order that of identities. No
// place depends on another version, on chance, or on counters.
func arrange(g *Graph) {
	at := map[string]int{}
	for i := range g.Nodes {
		at[g.Nodes[i].ID] = i
	}
	behind := map[string]bool{} // ends of pairs, whose other ends are further from the network
	for _, e := range g.Edges {
		if e.Kind == Pair {
			behind[e.From] = true
		}
	}
	tier := make([]int, len(g.Nodes))
	// Each round moves nodes behind those in front of them. A ring has no first node: its nodes move to the last tier.
	for moved := true; moved; {
		moved = false
		for _, e := range g.Edges {
			from, to := at[e.From], at[e.To]
			if e.Kind == Member && behind[e.From] { // the port lies behind its bridge
				from, to = to, from
			}
			if next := tier[from] + 1; tier[to] < next && next < deepest {
				tier[to], moved = next, true
			}
		}
	}
	used := map[int]bool{}
	for i, n := range g.Nodes {
		if n.Kind != Host && n.Kind != Netns { // these lie around others
			used[tier[i]] = true
		}
	}
	compact, last := map[int]int{}, 0
	for t := range deepest {
		if used[t] {
			compact[t] = last
			last++
		}
	}
	order := map[int]int{}
	for i := range g.Nodes { // they are sorted by identity
		n := &g.Nodes[i]
		n.Tier = compact[tier[i]]
		if n.Kind == Host || n.Kind == Netns {
			n.Tier = -1
		}
		n.Order = order[n.Tier]
		order[n.Tier]++
	}
}
