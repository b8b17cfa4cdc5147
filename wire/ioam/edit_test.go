package ioam_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// Options that were inserted into any packet are there, aligned and readable; removing
// them gives the packet back.
func TestInsertRemoveIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pkt := packets().Draw(t, "packet")
		before := bytes.Clone(pkt)
		out, n := pkt, 0
		for range rapid.IntRange(1, 3).Draw(t, "options") {
			next, err := ioam.Insert(out, body().Draw(t, "body"))
			if err != nil {
				continue // full, or too long
			}
			out = next
			n++
		}
		found, err := ioam.Find(out)
		if err != nil || len(found) != n {
			t.Fatalf("%d options inserted, %d found, %v", n, len(found), err)
		}
		for _, o := range found {
			if _, err := o.Decode(); err != nil {
				t.Fatalf("inserted with a problem: %v", err)
			}
		}
		back, removed, err := ioam.Remove(out, func(ioam.Option) bool { return true })
		if err != nil || len(removed) != n || !bytes.Equal(back, before) || !bytes.Equal(pkt, before) {
			t.Fatalf("%d removed, %v\n   in %x\nthere %x\n back %x", len(removed), err, before, out, back)
		}
	})
}

// Options of the named namespaces are removed, and only those.
func TestRemoveByNamespace(t *testing.T) {
	pkt := udp().Bytes()
	for i, ns := range []uint16{1, 2, 1, 3} {
		trace, err := ioam.NewTrace(ns, 0x800000, 4*i)
		if err != nil {
			t.Fatal(err)
		}
		if pkt, err = ioam.Insert(pkt, trace); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		remove, left []uint16
	}{
		{nil, []uint16{1, 2, 1, 3}},
		{[]uint16{1}, []uint16{2, 3}},
		{[]uint16{3, 2}, []uint16{1, 1}},
		{[]uint16{9}, []uint16{1, 2, 1, 3}},
		{[]uint16{1, 2, 3}, nil},
	} {
		out, removed, err := ioam.Remove(pkt, ioam.InNamespace(c.remove...))
		if err != nil || len(removed)+len(c.left) != 4 {
			t.Fatalf("%v: %d removed, %v", c.remove, len(removed), err)
		}
		found, err := ioam.Find(out)
		if err != nil || len(found) != len(c.left) {
			t.Fatalf("%v: %d left, %v", c.remove, len(found), err)
		}
		for i, o := range found {
			if id, _ := o.Namespace(); id != c.left[i] {
				t.Errorf("%v: option %d is of namespace %d, want %d", c.remove, i, id, c.left[i])
			}
			if _, err := o.Decode(); err != nil {
				t.Errorf("%v: option %d: %v", c.remove, i, err)
			}
		}
		if len(c.left) == 0 && !bytes.Equal(out, udp().Bytes()) {
			t.Errorf("all removed: %x", out)
		}
	}
}

// Malformed options of a namespace are removed, too; options before an error are found.
func TestRemoveMalformed(t *testing.T) {
	pkt := raw(2, 0x31, 5, 0, 0, 0, 9, 0xFF) // misaligned, of 5 bytes
	out, removed, err := ioam.Remove(pkt, ioam.InNamespace(9))
	if err != nil || len(removed) != 1 || !bytes.Equal(out, udp().Bytes()) {
		t.Errorf("%d removed, %v, %x", len(removed), err, out)
	}
	cut := raw(4, 0x31, 4, 0, 9, 0, 1, 0x1E, 200)
	found, err := ioam.Find(cut)
	if len(found) != 1 || err == nil {
		t.Errorf("before a malformed option: %d found, %v", len(found), err)
	}
	if _, _, err := ioam.Remove(cut, ioam.InNamespace(1)); err == nil {
		t.Error("removed from a malformed header")
	}
}

// A packet that is cut anywhere is read up to there, and never beyond its end.
func TestFindTruncated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pkt := packets().Draw(t, "packet")
		for range 2 {
			if next, err := ioam.Insert(pkt, body().Draw(t, "body")); err == nil {
				pkt = next
			}
		}
		whole, err := ioam.Find(pkt)
		if err != nil {
			t.Fatal(err)
		}
		for n := range pkt {
			found, err := ioam.Find(pkt[:n:n])
			if len(found) > len(whole) || len(found) < len(whole) && err == nil {
				t.Fatalf("%d of %d options in %d bytes, %v", len(found), len(whole), n, err)
			}
		}
	})
}

// FuzzFind feeds packets of any bytes: what is found is decoded, and never beyond it.
func FuzzFind(f *testing.F) {
	for _, v := range vectors {
		f.Add(raw(4, unhex(f, v.hex)...))
	}
	f.Fuzz(func(t *testing.T, pkt []byte) {
		pkt = pkt[:len(pkt):len(pkt)]
		found, _ := ioam.Find(pkt)
		for _, o := range found {
			if o.At < ipv6.HeaderSize || o.At+len(o.Raw) > len(pkt) {
				t.Fatalf("%+v in %d bytes", o, len(pkt))
			}
			body, err := o.Decode()
			if trace, ok := body.(*ioam.Trace); ok {
				_, _ = trace.Hops()
			}
			if err != nil || body == nil {
				continue
			}
			// An option without a problem is what its body encodes to.
			again, err := ioam.AppendOption(nil, body)
			if err != nil || !bytes.Equal(again, o.Raw) {
				t.Fatalf("%x encodes to %x, %v", o.Raw, again, err)
			}
			out, removed, err := ioam.Remove(pkt, func(o ioam.Option) bool { return true })
			if err == nil && (len(removed) != len(found) || len(out) > len(pkt)) {
				t.Fatalf("%d of %d removed", len(removed), len(found))
			}
		}
	})
}
