package report

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxCell bounds what one untrusted string may take of a line, in runes.
const maxCell = 400

// clean makes a string from outside (a span's name, a log line, a pod's name) safe to print on one line: no control or
// formatting character reaches a terminal, so none can move the cursor, hide text or fake a line of the report.
func clean(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > maxCell {
			b.WriteRune('…')
			break
		}
		switch {
		case r == '\n' || r == '\r' || r == '\t' || r == '\u2028' || r == '\u2029' || r == '\u0085':
			b.WriteByte(' ')
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r):
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteRune(r) // an invalid byte ranges as utf8.RuneError
		}
	}
	return b.String()
}

// stamp is RFC 3339 with milliseconds, UTC; "-" for no time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// clock is the time of day of a stamp, for rows whose date is said elsewhere.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("15:04:05.000Z")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// seconds writes a duration in seconds with one decimal at most: "5 s", "0.4 s".
func seconds(d time.Duration) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
}

// table writes rows in aligned columns, two spaces apart, each line after indent. Cells are cleaned; the last column
// is not padded.
func table(b *strings.Builder, indent string, rows [][]string) {
	width := []int{}
	for i, row := range rows {
		for j, cell := range row {
			rows[i][j] = clean(cell)
			if j == len(width) {
				width = append(width, 0)
			}
			width[j] = max(width[j], utf8.RuneCountInString(rows[i][j]))
		}
	}
	for _, row := range rows {
		line := indent
		for j, cell := range row {
			line += cell
			if j < len(row)-1 {
				line += strings.Repeat(" ", width[j]-utf8.RuneCountInString(cell)+2)
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// wrap breaks a paragraph into lines of at most width runes.
func wrap(s string, width int) string {
	var b strings.Builder
	n := 0
	for _, w := range strings.Fields(s) {
		l := utf8.RuneCountInString(w)
		switch {
		case n == 0:
		case n+1+l > width:
			b.WriteByte('\n')
			n = 0
		default:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(w)
		n += l
	}
	return b.String()
}
