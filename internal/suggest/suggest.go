// Package suggest finds what a user most likely meant. Input: an unknown word and
// the known ones. Output: the nearest known word, or none. Callers: configuration,
// filter language, API and command line, for their error messages.
package suggest

// longest is the longest word that is compared: words may come over the API.
const longest = 64

// Nearest returns the known word with the fewest edits from word, and "" when
// none is near enough to be a likely typing error: a third of the letters. Of
// words that are equally near, it is the one that begins alike.
func Nearest(word string, known []string) string {
	if len(word) > longest {
		return ""
	}
	best, fewest := "", len(word)/3+1
	for _, k := range known {
		d := distance(word, k)
		if d < fewest || d == fewest && best != "" && sharedPrefix(word, k) > sharedPrefix(word, best) {
			best, fewest = k, d
		}
	}
	return best
}

// sharedPrefix is how many bytes two words have in common at the beginning.
func sharedPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment).
func distance(a, b string) int {
	width := len(b) + 1
	d := make([]int, (len(a)+1)*width)
	for i := range len(a) + 1 {
		d[i*width] = i
	}
	for j := range width {
		d[j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j < width; j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			at := i*width + j
			d[at] = min(d[at-width]+1, d[at-1]+1, d[at-width-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[at] = min(d[at], d[at-2*width-2]+1)
			}
		}
	}
	return d[len(d)-1]
}
