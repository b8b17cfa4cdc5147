package interp

import "fmt"

// helpers are functions of the kernel that programs call, by the names that they have there.
var helpers = map[string]func(r *run) (uint64, error){
	"__htab_map_lookup_elem":      (*run).lookupElement,
	"htab_map_lookup_elem":        (*run).lookupValue,
	"htab_lru_map_lookup_elem":    (*run).lookupValue,
	"trie_lookup_elem":            (*run).lookupValue,
	"bpf_map_lookup_elem":         (*run).lookupValue,
	"htab_map_update_elem":        (*run).update,
	"htab_lru_map_update_elem":    (*run).update,
	"htab_percpu_map_update_elem": (*run).update,
	"htab_map_delete_elem":        (*run).remove,
	"htab_lru_map_delete_elem":    (*run).remove,

	"bpf_ktime_get_ns":        func(r *run) (uint64, error) { return r.Now, nil },
	"bpf_ktime_get_coarse_ns": func(r *run) (uint64, error) { return r.Now, nil },
	"bpf_user_rnd_u32":        func(r *run) (uint64, error) { return uint64(r.Random), nil },

	"bpf_skb_load_bytes":          (*run).loadBytes,
	"bpf_skb_load_bytes_relative": (*run).loadBytesRelative,
	"bpf_skb_store_bytes":         (*run).storeBytes,
	"bpf_skb_pull_data":           func(*run) (uint64, error) { return 0, nil }, // all is linear
	"bpf_skb_adjust_room":         (*run).adjustSize,
	"bpf_sk_fullsock":             func(r *run) (uint64, error) { return r.reg[1], nil },
}

// helper calls one. Registers that it may change cannot be read afterwards: the verifier saw to that.
func (r *run) helper(relative int32) error {
	name := r.kernel.names[r.kernel.base+uint64(int64(relative))]
	f := helpers[name]
	if f == nil {
		f = xdpHelpers[name]
	}
	if f == nil {
		return fmt.Errorf("the helper %q (%d) is not known", name, relative)
	}
	r.counters.Helpers++
	v, err := f(r)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.reg[0] = v
	return nil
}

// failed is what helpers return in place of -EFAULT and the like.
const failed = ^uint64(0)

// mapAndKey are the first two arguments of what works on maps.
func (r *run) mapAndKey() (*vmMap, []byte, error) {
	m := r.byBase[r.reg[1]]
	if m == nil {
		return nil, nil, fmt.Errorf("%#x is no map", r.reg[1])
	}
	key, err := r.of(r.reg[2]).at(r.reg[2], uint64(m.info.KeySize))
	return m, key, err
}

func (r *run) lookupElement() (uint64, error) {
	m, key, err := r.mapAndKey()
	if err != nil {
		return 0, err
	}
	return r.element(m, key)
}

func (r *run) lookupValue() (uint64, error) {
	m, key, err := r.mapAndKey()
	if err != nil {
		return 0, err
	}
	at, err := r.element(m, key)
	if at == 0 || err != nil {
		return 0, err
	}
	return at + m.value, nil
}

func (r *run) update() (uint64, error) {
	m, key, err := r.mapAndKey()
	if err != nil {
		return 0, err
	}
	value, err := r.of(r.reg[3]).at(r.reg[3], uint64(m.info.ValueSize))
	if err != nil {
		return 0, err
	}
	r.putElement(m, key, value)
	return 0, nil
}

func (r *run) remove() (uint64, error) {
	m, key, err := r.mapAndKey()
	if err != nil {
		return 0, err
	}
	at, err := r.element(m, key)
	if at == 0 || err != nil {
		return failed, err
	}
	m.elements[string(key)] = 0
	return 0, nil
}

// inFrame is a part of the frame, or nil.
func (r *run) inFrame(offset, n uint64) []byte {
	if offset+n > uint64(r.skb.len) {
		return nil
	}
	at := uint64(r.skb.data) + offset
	return r.skb.head[at : at+n]
}

func (r *run) loadBytes() (uint64, error) { return r.copyOut(r.reg[2]) }

func (r *run) loadBytesRelative() (uint64, error) {
	const fromNetworkHeader = 1
	if r.reg[5] == fromNetworkHeader {
		return r.copyOut(r.reg[2] + uint64(r.skb.link))
	}
	return r.copyOut(r.reg[2])
}

func (r *run) copyOut(offset uint64) (uint64, error) {
	to, err := r.of(r.reg[3]).at(r.reg[3], r.reg[4])
	if err != nil {
		return 0, err
	}
	from := r.inFrame(offset, r.reg[4])
	if from == nil {
		return failed, nil
	}
	copy(to, from)
	return 0, nil
}

func (r *run) storeBytes() (uint64, error) {
	from, err := r.of(r.reg[3]).at(r.reg[3], r.reg[4])
	if err != nil {
		return 0, err
	}
	to := r.inFrame(r.reg[2], r.reg[4])
	if to == nil {
		return failed, nil
	}
	copy(to, from)
	return 0, nil
}

// adjustSize (bpf_skb_adjust_room) adds or removes bytes behind the network header (BPF_ADJ_ROOM_NET) or before it (BPF_ADJ_ROOM_MAC).
func (r *run) adjustSize() (uint64, error) {
	const adjustNet = 0
	s, by, keep := r.skb, int(int32(r.reg[2])), r.skb.link
	if r.reg[3] == adjustNet {
		keep += 20
		if s.head[s.data+s.link]>>4 == 6 {
			keep += 20
		}
	}
	if by > s.data || s.len+by < keep {
		return failed, nil
	}
	copy(s.head[s.data-by:][:keep], s.head[s.data:][:keep])
	s.data -= by
	s.len += by
	for i := range max(by, 0) {
		s.head[s.data+keep+i] = 0
	}
	return 0, s.update()
}
