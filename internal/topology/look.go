package topology

import "github.com/vishvananda/netlink"

// Survey is what a Watcher would find now.
type Survey struct {
	Interfaces []string // names of those that match, in all namespaces
	Netns      int      // namespaces, the own one among them
}

// Look lists what matches a Config, without watching it. Namespaces that cannot
// be entered are left out: the Watcher reports them.
func Look(cfg Config) (Survey, error) {
	var s Survey
	count := func() error {
		h, err := netlink.NewHandle(netlinkRoute)
		if err != nil {
			return err
		}
		defer h.Close()
		links, err := whole(h.LinkList)
		for _, l := range links {
			if name := l.Attrs().Name; cfg.matchesIface(name) {
				s.Interfaces = append(s.Interfaces, name)
			}
		}
		s.Netns++
		return err
	}
	if err := count(); err != nil {
		return s, err
	}
	if len(cfg.Netns) == 0 {
		return s, nil
	}
	own, err := StatNetns("/proc/thread-self/ns/net")
	if err != nil {
		return s, err
	}
	found, _, err := listNetns(NetnsDir)
	seen := map[NetnsID]bool{own: true}
	for name, id := range found {
		if !seen[id] && cfg.matchesNetns(name) {
			seen[id] = true
			_ = InNetns(name, count)
		}
	}
	return s, err
}
