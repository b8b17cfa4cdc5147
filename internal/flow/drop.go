package flow

// Drop says why the gate dropped packets of a flow. Records share it: it is never changed.
type Drop struct {
	Verdict Verdict
	Rule    uint32 // its id; 0: none, or several
	Text    string // of the rule
}

// Verdict is how a rule came to drop packets.
type Verdict uint8

// The verdicts.
const (
	VerdictNone      Verdict = iota // nothing was dropped
	VerdictDrop                     // a rule that drops what it matches
	VerdictLimit                    // packets beyond a limit
	VerdictSynCookie                // no connection, and no cookie
	VerdictBan                      // the source is banned
	VerdictSeveral                  // rules of several kinds
)

// verdictNames are its values by number.
var verdictNames = [...]string{"none", "drop", "limit", "syncookie", "ban", "several"}

// ofSeveral are drops by several rules of the same kind, or of several.
var ofSeveral = func() (all [len(verdictNames)]Drop) {
	for i := range all {
		all[i].Verdict = Verdict(i)
	}
	return all
}()

// and is what two reasons have in common.
func (d *Drop) and(o *Drop) *Drop {
	switch {
	case o == nil || d == o:
		return d
	case d == nil || *d == *o:
		return o
	case d.Verdict == o.Verdict:
		return &ofSeveral[d.Verdict]
	}
	return &ofSeveral[VerdictSeveral]
}

func (v Verdict) String() string { return nameOf(verdictNames[:], int(v)) }
