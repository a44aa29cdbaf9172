package scenario

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// WriteReport writes the results as the page docs/e2e.md.
func WriteReport(w io.Writer, results []Result) error {
	var b strings.Builder
	b.WriteString(`# Live recordings against the truth

Written by ` + "`make e2e`" + `: each scenario happens to real pods on a real cluster while ` + "`rolltrace record`" + ` runs. What rolltrace derives
from the recording is held against what the services wrote down themselves (receipt of SIGTERM, exit, last line of the log)
and what the container runtime saw (exit and its code). A bound that misses the truth, a wrong cause, code or number of
rolls, a lost line, or a gap that was made and is not told fails the run.

Widths are Latest − Earliest of the bounds that rolltrace gives, in milliseconds: median / 95th percentile / maximum. *known*
is how many of those that there were.

| scenario | what happens | rolls | ended | SIGTERM known | width | exit known | width | codes | last lines | gaps |
|---|---|---|---|---|---|---|---|---|---|---|
`)
	var all Result
	all.Sources = map[roll.Source]int{}
	rolls := 0
	for _, r := range results {
		name := r.Scenario.Name
		if len(r.Wrong) > 0 {
			name += " **wrong**"
		}
		row(&b, name, r.Scenario.What, len(r.Scenario.Rolls), r)
		rolls += len(r.Scenario.Rolls)
		all.Ended += r.Ended
		all.Signals += r.Signals
		all.Codes += r.Codes
		all.Logs += r.Logs
		all.LastLines += r.LastLines
		all.SignalWidths = append(all.SignalWidths, r.SignalWidths...)
		all.ExitWidths = append(all.ExitWidths, r.ExitWidths...)
		for s, n := range r.Sources {
			all.Sources[s] += n
		}
	}
	row(&b, "**all**", "", rolls, all)

	b.WriteString("\nWhat the bounds of SIGTERM rest on:\n\n| source | n |\n|---|---|\n")
	sources := slices.SortedFunc(maps.Keys(all.Sources), func(x, y roll.Source) int {
		return cmp.Or(cmp.Compare(all.Sources[y], all.Sources[x]), cmp.Compare(x, y))
	})
	for _, s := range sources {
		fmt.Fprintf(&b, "| `%s` | %d |\n", s, all.Sources[s])
	}
	b.WriteString("\nHow far further sources narrow, over all scenarios:\n\n| sources | SIGTERM known | width | exit known | width |\n|---|---|---|---|---|\n")
	for _, v := range variants {
		var w widths
		for _, r := range results {
			if n := r.Narrowed[v.name]; n != nil {
				w.signal, w.exit = append(w.signal, n.signal...), append(w.exit, n.exit...)
			}
		}
		fmt.Fprintf(&b, "| %s | %d of %d | %s | %d of %d | %s |\n", v.name, len(w.signal), all.Signals, spread(w.signal), len(w.exit), all.Ended, spread(w.exit))
	}
	for _, r := range results {
		if len(r.Wrong) > 0 {
			fmt.Fprintf(&b, "\n## %s: wrong\n\n- %s\n", r.Scenario.Name, strings.Join(r.Wrong, "\n- "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func row(b *strings.Builder, name, what string, rolls int, r Result) {
	reasons := map[roll.GapReason]bool{}
	for _, g := range r.Gaps {
		reasons[g.Reason] = true
	}
	var gaps []string
	for _, g := range slices.Sorted(maps.Keys(reasons)) {
		gaps = append(gaps, "`"+string(g)+"`")
	}
	fmt.Fprintf(b, "| %s | %s | %d | %d | %d of %d | %s | %d of %d | %s | %d of %d | %d of %d | %s |\n",
		name, what, rolls, r.Ended, len(r.SignalWidths), r.Signals, spread(r.SignalWidths), len(r.ExitWidths), r.Ended, spread(r.ExitWidths),
		r.Codes, r.Ended, r.LastLines, r.Logs, strings.Join(gaps, " "))
}

// spread is median / 95th percentile / maximum, nearest rank, in ms.
func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "–"
	}
	d = slices.Sorted(slices.Values(d))
	at := func(percent int) int64 { return d[max(0, (len(d)*percent+99)/100-1)].Milliseconds() }
	return fmt.Sprintf("%d / %d / %d", at(50), at(95), at(100))
}
