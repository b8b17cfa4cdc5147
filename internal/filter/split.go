package filter

import (
	"fmt"
	"strings"
)

// Split takes the filter apart for a query that groups records: one that each
// record has to match before it is added to a row, and one that each row has to
// match, by its sums. Tests of sums (packets, bytes, round trips, delays, …) are of
// rows, all others of records. An "or" or "not" of both has no meaning for a row of
// many records; where rows are flows (wholeFlows), it is of rows.
func (f Filter) Split(wholeFlows bool) (records, rows Filter, err error) {
	var ofRecords, ofRows and
	for _, n := range conjuncts(f.root, nil) {
		of := kinds(n)
		switch {
		case of == ofRecord:
			ofRecords = append(ofRecords, n)
		case of == ofRow, wholeFlows:
			ofRows = append(ofRows, n)
		default:
			return Filter{}, Filter{}, mixed(n)
		}
	}
	return ofRecords.filter(), ofRows.filter(), nil
}

func (list and) filter() Filter {
	switch len(list) {
	case 0:
		return Filter{}
	case 1:
		return Filter{list[0]}
	}
	return Filter{list}
}

// conjuncts are the parts that all have to match.
func conjuncts(n node, list []node) []node {
	switch n := n.(type) {
	case nil:
	case and:
		for _, part := range n {
			list = conjuncts(part, list)
		}
	default:
		list = append(list, n)
	}
	return list
}

// What the tests in a part of an expression are of.
const (
	ofRecord = 1 << iota
	ofRow
)

func kinds(n node) (of int) {
	switch n := n.(type) {
	case or:
		for _, part := range n {
			of |= kinds(part)
		}
	case and:
		for _, part := range n {
			of |= kinds(part)
		}
	case not:
		of = kinds(n.node)
	case test:
		of = ofRecord
		if n.field.sum {
			of = ofRow
		}
	}
	return of
}

// mixed is the error for an expression that is neither of records nor of rows.
func mixed(n node) error {
	var b strings.Builder
	n.print(&b)
	return fmt.Errorf("filter: %q joins a test of each record with a test of a row's sums: join the two with and, or group by flow", b.String())
}
