package agent

import "time"

// proxyTime is what a proxy may take to answer that it drains.
const proxyTime = 2 * time.Second

// DrainStop is the longest that Run takes, once it is told to stop with DrainOnStop, to take
// the machine out of the traffic: everything up to when the proxy, data planes and routers are
// told to end. drain is the machine's drain time.
//
// It is the sum of what each step waits at most (drainer.leave, drainer.awaitOthers,
// drainer.vacate and Agent.release), each of which ends as soon as there is evidence. The two
// waits of release share a releaseTime: the first call of data planes, and their last.
func DrainStop(drain time.Duration) time.Duration {
	leave := releaseTime + // its kernel lets no new flow begin here
		followTime + // peers are told
		followTime + 2*(askTime+proxyTime) + // and follow, by what is counted before and after
		proxyTime + drain // connections end
	others := noticeTime + drain // the others notice, and what began before they did ends
	vacate := noticeTime + drain // flows of backends here that were taken out end
	return leave + others + vacate + releaseTime
}

// EndStop is the time that Run takes after that, without the proxy, whatever data planes
// do.
const EndStop = endTime
