package verify

import "github.com/rolltrace/rolltrace/roll"

func tmpLogs(rec *roll.Recording, tl *roll.Timeline) (out []roll.LogLine, gaps []roll.Gap) {
	for _, l := range rec.Logs {
		out = append(out, roll.LogLine{Pod: roll.PodRef{Namespace: l.Namespace, Name: l.Pod, UID: l.UID}, Container: l.Container, Time: l.Time, Body: l.Line, Message: l.Line, Severity: 9})
	}
	return
}
