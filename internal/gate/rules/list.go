package rules

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxListErrors is how many lines of a block list are reported.
const maxListErrors = 20

// ReadList reads a block list: addresses, prefixes and ranges, one per line, behind which
// a comment may follow (FireHOL, Spamhaus DROP as text or JSON lines), or what ipset save
// writes. Timeouts count from now.
func ReadList(file string, in io.Reader, now time.Time) ([]Member, Errors) {
	var list []Member
	var errs Errors
	lines := bufio.NewScanner(in)
	n := 1
	for ; lines.Scan(); n++ {
		text := lines.Text()
		if n == 1 {
			text = strings.TrimPrefix(text, byteOrderMark)
		}
		members, err := listLine(text, now)
		list = append(list, members...)
		if err == nil {
			continue
		}
		if len(errs) == maxListErrors {
			errs = append(errs, &Error{Pos: Position{File: file, Line: n}, What: "further lines are wrong, too: is this a block list?"})
			break
		}
		indent := len(text) - len(strings.TrimLeft(text, blanks))
		errs = append(errs, &Error{
			Pos: Position{file, n, indent + 1}, What: err.Error(), Line: text,
			End: utf8.RuneCountInString(strings.TrimRight(text, blanks)) + 1,
		})
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		errs = append(errs, &Error{Pos: Position{File: file, Line: n}, What: fmt.Sprintf("the line is longer than %d bytes: is this a block list?", bufio.MaxScanTokenSize)})
	} else if err != nil {
		errs = append(errs, &Error{Pos: Position{File: file, Line: n}, What: err.Error()})
	}
	return mergeMembers(list), errs
}

// listLine reads one line of a block list.
func listLine(text string, now time.Time) ([]Member, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		return listJSON(text)
	}
	if n := strings.IndexAny(text, "#;"); n >= 0 {
		text = text[:n]
	}
	words := strings.Fields(text)
	switch {
	case len(words) == 0 || strings.HasPrefix(words[0], "//"):
		return nil, nil
	case words[0] == "create":
		return nil, ipsetKind(words)
	case words[0] == "add":
		return ipsetMember(words, now)
	case len(words) == 3 && words[1] == "-": // a - b
		words = []string{words[0] + "-" + words[2]}
	case len(words) > 1:
		if _, err := parsePrefix(words[0]); err == nil {
			return nil, fmt.Errorf("expected one address, prefix or range per line, and comments behind # or ;: unexpected %s", shorten(words[1]))
		}
	}
	prefixes, err := parsePrefixes(words[0])
	return membersOf(prefixes, time.Time{}), err
}

func membersOf(prefixes []netip.Prefix, until time.Time) (list []Member) {
	for _, p := range prefixes {
		if p.IsValid() {
			list = append(list, Member{p, until})
		}
	}
	return list
}

// listJSON reads {"cidr":"192.0.2.0/24","sblid":"SBL1"}, and skips {"type":"metadata"}.
func listJSON(text string) ([]Member, error) {
	var entry struct{ CIDR, Type string }
	if err := json.Unmarshal([]byte(text), &entry); err != nil {
		return nil, fmt.Errorf("not a line of JSON: %w", err)
	}
	if entry.CIDR == "" && entry.Type == "metadata" {
		return nil, nil
	}
	prefix, err := parsePrefix(entry.CIDR)
	return membersOf([]netip.Prefix{prefix}, time.Time{}), err
}

// ipsetKind checks create NAME hash:net …
func ipsetKind(words []string) error {
	if len(words) >= 3 && (words[2] == "hash:ip" || words[2] == "hash:net") {
		return nil
	}
	return errors.New("expected an ipset of type hash:ip or hash:net: other types have more than addresses")
}

// ipsetMember reads add NAME PREFIX [timeout N] …
func ipsetMember(words []string, now time.Time) ([]Member, error) {
	if len(words) < 3 {
		return nil, errors.New("expected add, the name of the ipset and an address")
	}
	prefixes, err := parsePrefixes(words[2])
	if err != nil {
		return nil, err
	}
	until := time.Time{}
	for i, word := range words[3:] {
		switch word {
		case "nomatch":
			return nil, errors.New("nomatch has no equivalent: write a rule in front that passes these addresses")
		case "timeout":
			if i+4 >= len(words) {
				return nil, errors.New("expected a number of seconds after timeout")
			}
			seconds, err := strconv.ParseUint(words[i+4], 10, 31)
			if err != nil {
				return nil, errors.New("expected a number of seconds after timeout")
			}
			if seconds > 0 {
				until = now.Add(time.Duration(seconds)*time.Second + time.Second - 1).UTC().Truncate(time.Second)
			}
		case "comment":
			return membersOf(prefixes, until), nil
		}
	}
	return membersOf(prefixes, until), nil
}
