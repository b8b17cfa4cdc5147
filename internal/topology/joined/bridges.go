package joined

import "slices"

// separated reports whether a host that bridges is between two interfaces, so that they are no link of their own: it has learned
// one of them behind one port, and the other behind another. Where nothing says which of two bridges is nearer, it is reported.
func (j *joiner) separated(x, y *iface) bool {
	for _, s := range j.bridges(x, y) {
		if j.steps -= 1 + len(x.stack.macs) + len(y.stack.macs); j.steps < 0 {
			j.unsought++
			return true
		}
		atX, atY := j.port(s, x.stack), j.port(s, y.stack)
		switch {
		case atX != nil && atY != nil:
			if atX != atY {
				return true
			}
		case atX != nil:
			if j.behind(s, atX, x, y) {
				return true
			}
		case atY != nil:
			if j.behind(s, atY, y, x) {
				return true
			}
		}
	}
	return false
}

// bridges are those that know one of two interfaces.
func (j *joiner) bridges(x, y *iface) (list []*stack) {
	for _, end := range []*iface{x, y} {
		for mac := range end.stack.macs {
			for _, s := range j.learners[mac] {
				if s != x.stack && s != y.stack && !slices.Contains(list, s) {
					list = append(list, s)
				}
			}
		}
	}
	slices.SortFunc(list, compareStacks)
	return list
}

// port is where a bridge has learned a stack; nil: nowhere, or at several.
func (j *joiner) port(s, of *stack) (port *iface) {
	for mac := range of.macs {
		p, known := s.learned[mac]
		switch {
		case !known, len(stacksOf(j.macs[mac])) > 1:
		case p == nil || port != nil && port != p:
			return nil
		default:
			port = p
		}
	}
	return port
}

// behind reports whether bridge s, which knows one end behind a port but not the other one, is between both. That may be where
// the other end is a bridge itself, which nobody had a frame of: both are on the way of somebody whom they know on their other
// sides.
func (j *joiner) behind(s *stack, port, known, other *iface) bool {
	if len(other.stack.learned) == 0 {
		return false
	}
	back := j.port(other.stack, s)
	if back != nil && back != other {
		return false
	}
	j.steps -= len(s.learned)
	both := false // are on the way of somebody
	for mac, p := range s.learned {
		if q := other.stack.learned[mac]; p != nil && p != port && q != nil && q != other {
			both = true
		}
	}
	if (back == nil) == both { // else it is behind, or nothing says that they are on one way
		j.doubt(DoubtBridges, s.first.as().String()+" and "+other.stack.first.as().String()+", to "+known.as().String(), []*iface{s.first, other.stack.first}).Unused++
	}
	return both || back != nil
}
