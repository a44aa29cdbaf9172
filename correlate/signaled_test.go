package correlate

import "testing"

func TestSaysSignaled(t *testing.T) {
	for _, line := range []string{
		`{"level":"INFO","msg":"received SIGTERM, draining"}`,
		`2026/12/01 03:00:00 received signal: terminated`,
		`received terminated, draining`,
		`2026/12/01 03:00:00 [notice] 1#1: signal 15 (SIGTERM) received from 0, exiting`,
		`1:signal-handler (1796095692) Received SIGTERM scheduling shutdown...`,
		`[2026-12-01 03:00:00 +0000] [1] [INFO] Handling signal: term`,
		`[warning][main] caught ENVOY_SIGTERM`,
		`LOG:  received fast shutdown request`,
		`INFO o.s.b.w.e.tomcat.GracefulShutdown : Commencing graceful shutdown. Waiting for active requests to complete`,
		`got SIGTERM`,
		`SIGTERM received, shutting down`,
		`Received termination signal 15`,
	} {
		if !saysSignaled(line) {
			t.Errorf("not taken for the stop signal: %s", line)
		}
	}
	for _, line := range []string{
		`installing SIGTERM handler`, `waiting for SIGTERM`, `received request /terminated`, `got 15 items`,
		`connection terminated by peer`, `terminated`, `shutdown hook registered`, `received 1500 bytes`, `received signal: hangup`,
		`handling request term=15`, `the call got terminated`, `caught signal handler panic`,
	} {
		if saysSignaled(line) {
			t.Errorf("taken for the stop signal: %s", line)
		}
	}
}
