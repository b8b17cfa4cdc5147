package hops

// Len is at how many points the flow was counted.
func (p *Points) Len() int { return len(p.points) }

// Most is how many packets the point counted that counted the most.
func (p *Points) Most() (n uint64) {
	for _, one := range p.points {
		n = max(n, one.Packets)
	}
	return n
}

// Mixed reports whether packets had different hop limits where they were highest: some may have been meant to expire, as those of
// traceroute are.
func (p *Points) Mixed() bool {
	var first *Point
	for _, one := range p.points {
		if first == nil || one.TTLMax > first.TTLMax || one.TTLMax == first.TTLMax && one.TTLMin < first.TTLMin {
			first = one
		}
	}
	return first != nil && first.TTLMin != first.TTLMax
}

// near are links that have an end at a point of the flow.
func (p *Points) near(links []Link) (list []Link) {
	at := map[End]bool{}
	for _, one := range p.points {
		at[End{one.Node, one.Iface}] = true
	}
	for i := range links {
		if at[links[i].A] || at[links[i].B] {
			list = append(list, links[i])
		}
	}
	return list
}
