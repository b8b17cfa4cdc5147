// Package termtest draws what a terminal shows as a picture for the documents, so that pictures are made by the tests
// that check the text. Input: lines of plain text. Output: SVG. Tests call it.
package termtest

import (
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Sizes of a character cell and of the frame around the screen, in pixels.
const (
	cellWidth  = 8
	cellHeight = 18
	frame      = 14
)

// Picture draws a screen as SVG. bold tells which lines, from 0, are headings.
func Picture(screen string, bold func(line int, text string) bool) []byte {
	lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
	width := 0
	for _, l := range lines {
		width = max(width, utf8.RuneCountInString(l))
	}
	var b strings.Builder
	w, h := width*cellWidth+2*frame, len(lines)*cellHeight+2*frame
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">`+"\n", w, h)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#1b1f24"/>`+"\n", w, h)
	b.WriteString(`<g font-family="ui-monospace,SFMono-Regular,Menlo,DejaVu Sans Mono,monospace" font-size="13" fill="#e6edf3">` + "\n")
	for i, l := range lines {
		if strings.TrimSpace(l) == "" {
			continue
		}
		style := ""
		if bold(i, l) {
			style = ` font-weight="bold" fill="#7ee2b8"`
		}
		// textLength keeps columns straight where the viewer has another font.
		fmt.Fprintf(&b, `<text x="%d" y="%d" textLength="%d" lengthAdjust="spacingAndGlyphs" xml:space="preserve"%s>`,
			frame, frame+cellHeight*i+cellHeight*3/4, utf8.RuneCountInString(l)*cellWidth, style)
		_ = xml.EscapeText(&b, []byte(l)) // a Builder takes everything
		b.WriteString("</text>\n")
	}
	b.WriteString("</g>\n</svg>\n")
	return []byte(b.String())
}
