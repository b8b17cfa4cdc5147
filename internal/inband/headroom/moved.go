package headroom

import (
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/topology"
)

// moved restores a setting of an interface that is no longer in its namespace: it
// was moved to another, or came back to the host's when its namespace was deleted.
// The kernel resets the IPv6 MTU and routes then, but not gso_max_segs. unseen
// counts the namespaces that this process may not enter.
func (c change) moved() (done bool, unseen int, err error) {
	if c.Setting != SettingSegments {
		return false, 0, nil
	}
	walkErr := topology.EachNetns(func(n *topology.Netns) bool {
		enterErr := n.Do(func() error {
			done, err = c.undoHere()
			return nil
		})
		if enterErr != nil {
			unseen++
		}
		return !done && err == nil
	})
	if err == nil {
		err = walkErr
	}
	return done, unseen, err
}

// undoHere restores the setting if the interface is in the calling thread's
// namespace. A move may change its index or its name, where those are taken.
func (c change) undoHere() (done bool, err error) {
	links, err := topology.Links()
	if err != nil {
		return false, err
	}
	for _, l := range links {
		a := l.Attrs()
		sameName, sameIndex := a.Name == c.Name, a.Index == c.Index
		same := a.HardwareAddr.String() == c.MAC && (sameName && sameIndex || c.MAC != "" && (sameName || sameIndex))
		if same && int(a.GSOMaxSegs) == c.To {
			return true, netlink.LinkSetGSOMaxSegs(l, c.From)
		}
	}
	return false, nil
}
