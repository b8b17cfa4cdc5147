// Package suggest finds what a user most likely meant. In comes a word that is
// unknown and the words that are known; out goes the nearest of them, or none.
// Configuration, filter language and API call it for their error messages.
package suggest

// Nearest returns the known word with the fewest edits from word, and "" when
// none is near enough to be a likely slip of the finger: a third of the letters.
func Nearest(word string, known []string) string {
	best, fewest := "", len(word)/3+1
	for _, k := range known {
		if d := distance(word, k); d < fewest {
			best, fewest = k, d
		}
	}
	return best
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
