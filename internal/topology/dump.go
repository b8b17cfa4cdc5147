package topology

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// Links lists the links of the calling thread's namespace.
func Links() ([]netlink.Link, error) { return whole(netlink.LinkList) }

// whole takes a dump of the kernel again that changed under way: it may lack what was there all the time.
func whole[T any](dump func() ([]T, error)) ([]T, error) {
	for range 10 {
		list, err := dump()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	return nil, errors.New("the list changed during ten readings")
}
