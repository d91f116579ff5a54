-- Sends until the time is up, waits for the answers of what it sent, then says so and idles until interrupted.
-- Arguments: seconds, file with the request body, number of sessions.

local ffi = require("ffi")
ffi.cdef [[
  typedef struct { long sec; long nsec; } benchmark_time;
  int clock_gettime(int clock, benchmark_time *now);
]]
local clock = ffi.new("benchmark_time")

local function now()
  ffi.C.clock_gettime(1, clock)
  return tonumber(clock.sec) + tonumber(clock.nsec) / 1e9
end

local IDLE_MILLISECONDS = 1e9
local requests, position = {}, 0
local sent, answered, failed = 0, 0, 0
local seconds, began, deadline

function init(arguments)
  seconds = tonumber(arguments[1])
  local file = assert(io.open(arguments[2], "rb"))
  local body = file:read("*a")
  file:close()
  for number = 1, tonumber(arguments[3]) do
    local headers = {["Content-Type"] = "application/json", ["proxy_x_session_id"] = "bench-" .. (number - 1)}
    requests[number] = wrk.format("POST", nil, headers, body)
  end
end

function request()
  position = position % #requests + 1
  return requests[position]
end

function delay()
  local time = now()
  if not began then
    began, deadline = time, time + seconds
  end
  if time < deadline then
    sent = sent + 1
    return 0
  end
  if answered == sent then
    io.write(string.format("drained %d %d %.6f\n", answered, failed, time - began))
    io.flush()
  end
  return IDLE_MILLISECONDS
end

function response(status)
  answered = answered + 1
  if status ~= 200 then
    failed = failed + 1
  end
end

function done(summary, latency)
  io.write(string.format("latency %f %f\n", latency:percentile(50) / 1e6, latency:percentile(99) / 1e6))
end
