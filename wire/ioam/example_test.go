package ioam_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/waymark-net/waymark/wire/ioam"
)

// A trace for three nodes of 12 bytes, filled by one.
func Example() {
	trace, err := ioam.NewTrace(1, ioam.HopLimitNodeID|ioam.InterfaceIDs|ioam.TransitDelay, 3*12)
	if err != nil {
		fmt.Println(err)
		return
	}
	pkt, err := ioam.Insert(udp().Bytes(), trace)
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := ioam.Find(pkt)
	if err != nil {
		fmt.Println(err)
		return
	}
	node := ioam.Node{ID: 7, Namespaces: map[uint16]ioam.Namespace{1: {}}}
	passage := ioam.NewPassage(63)
	passage.Ingress, passage.Egress, passage.Delay = 1, 2, 30*time.Microsecond
	option, verdict := node.Update(found[0].Raw, found[0].Offset, passage)
	fmt.Println(verdict)

	body, err := ioam.DecodeOption(option)
	if err != nil {
		fmt.Println(err)
		return
	}
	hops, err := body.(*ioam.Trace).Hops()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, h := range hops {
		delay, _ := h.Delay()
		fmt.Printf("node %d, from interface %d to %d in %v, hop limit %d\n", h.NodeID, h.Ingress, h.Egress, delay, h.HopLimit)
	}
	// Output:
	// filled
	// node 7, from interface 1 to 2 in 30µs, hop limit 63
}

// All that is wrong with an option is in its error; what can be read is in the body.
func ExampleOption_Decode() {
	pkt := raw(4, 0x31, 14, 0, 0, 0, 1, 0x08, 0x00, 0x80, 0, 1, 9, 63, 0, 0, 7)
	found, err := ioam.Find(pkt)
	if err != nil {
		fmt.Println(err)
		return
	}
	body, err := found[0].Decode()
	var all ioam.Problems
	if errors.As(err, &all) {
		for _, p := range all {
			fmt.Println(p)
		}
	}
	hops, _ := body.(*ioam.Trace).Hops()
	fmt.Println(len(hops), "hop of node", hops[0].NodeID)
	// Output:
	// ioam: reserved bits are set: the lowest bit of Trace-Type 800001, at byte 54
	// ioam: reserved bits are set: byte behind Trace-Type is 09, at byte 55
	// 1 hop of node 7
}
