-- Puts a request into the scope of its host: the shard that the host hashes to or, when
-- that shard has no virtual host for it, the wildcard scope. Normaliser and hash are
-- those of Shard in scope.go; a test holds them equal.
--
-- Over TLS, a host that is not the server name of the connection must belong to the same
-- section of names as that; else the answer is 421. SECTION is the wildcard that the
-- server names here are below, or nil: then each is a section by itself.
local bit = require("bit")
local bxor, lshift, tobit, band = bit.bxor, bit.lshift, bit.tobit, bit.band
local byte, lower = string.byte, string.lower
local listener, tls, section = LISTENER, TLS, SECTION
local most, own, largest = HEADERS, BYTES
local below = {BELOW} -- suffixes of the wildcards that are more specific than the section
local scopes = {} -- made when first used: a listener may have many of these scripts
local wild = listener .. "/wild"
local safe = {GET = true, HEAD = true, OPTIONS = true}

local function ends(host, suffix)
  return #host > #suffix and host:sub(-#suffix) == suffix
end

local function foreign(host)
  if not section or section ~= "*" and not ends(host, section:sub(2)) then return true end
  for i = 1, #below do
    if ends(host, below[i]) then return true end
  end
  return false
end

local function misdirected(handle)
  handle:respond({[":status"] = "421"}, "421 the host is not served under this server name\n")
end

local base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local random = math.random

local function any(characters)
  local i = random(#characters)
  return characters:sub(i, i)
end

-- What HTTP/1.1 backends want and HTTP/2 and HTTP/3 clients do not send: 16 bytes in base64
-- (RFC 6455, 4.1; RFC 8441, 5). It tells handshakes from other requests and is no secret.
local function key()
  local text = {}
  for i = 1, 21 do text[i] = any(base64) end
  return table.concat(text) .. any("AQgw") .. "=="
end

local function refused(handle, why)
  return handle:respond({[":status"] = "400"}, "400 " .. why .. "\n")
end

local function upgrade(handle, headers, to)
  if lower(to) ~= "websocket" then return refused(handle, "connections are upgraded to WebSockets only") end
  -- What follows the headers is no body of a request, whatever they say (RFC 6455, 4.1).
  if headers:get(":method") ~= "GET" or headers:get("content-length") or headers:get("transfer-encoding") then
    return refused(handle, "a WebSocket begins with a GET without a body")
  end
  if handle:virtualHost():metadata():get("no_upgrade") then
    return refused(handle, "the route does not allow WebSockets")
  end
  if handle:streamInfo():protocol() ~= "HTTP/1.1" then headers:replace("sec-websocket-key", key()) end
end

-- To look at every header takes longer than all the rest here, so it is done where the headers took more than
-- 40 bytes each on the way that there may be. Of smaller ones four times as many pass, which is Envoy's own limit.
local function oversized(headers)
  local sent, path = tonumber(headers:get("x-fairlead-scope")), headers:get(":path") or ""
  if sent and sent <= 40 * most and sent + #path <= largest then return false end
  local count, size = 0, 0
  for name, value in pairs(headers) do
    count, size = count + 1, size + #name + #value
  end
  return count > most + own or size > largest
end

-- Clients of gRPC get RESOURCE_EXHAUSTED, as from servers of gRPC.
local function refuseOversized(handle, headers)
  local why = "431 the request has too many headers, or too large ones"
  if (headers:get("content-type") or ""):find("^application/grpc") then
    return handle:respond({[":status"] = "431", ["grpc-status"] = "8"}, why)
  end
  return handle:respond({[":status"] = "431"}, why .. "\n")
end

function envoy_on_request(handle)
  local headers = handle:headers()
  if oversized(headers) then return refuseOversized(handle, headers) end
  local authority = headers:get(":authority") or ""
  if byte(authority, -1) == 58 then -- ":" without a port (RFC 3986, 3.2.3)
    authority = authority:sub(1, -2)
    headers:replace(":authority", authority)
  end
  local host = lower(authority):gsub(":%d+$", "")
  local other = tls and handle:streamInfo():requestedServerName() ~= host
  if other and foreign(host) then return misdirected(handle) end
  local hash = -2128831035 -- FNV-1a, 32 bits: 2166136261
  for i = 1, #host do
    hash = bxor(hash, byte(host, i))
    hash = tobit(hash * 403 + lshift(hash, 24)) -- times 16777619, without leaving 53 bits
  end
  local shard = band(hash, MASK)
  local scope = scopes[shard]
  if not scope then
    scope = listener .. "/" .. shard
    scopes[shard] = scope
  end
  headers:replace("x-fairlead-scope", scope)
  handle:clearRouteCache()
  if handle:metadata():get("unknown_host") then
    if tls and not section then return end -- no wildcard host has this server name
    if host:find("[^%w%.%-_:%[%]]") then -- two hosts, say, which Envoy joins by a comma
      return refused(handle, "no such host can be")
    end
    headers:replace("x-fairlead-scope", wild)
    handle:clearRouteCache()
  elseif other then
    local own = handle:virtualHost():metadata():get("section")
    if own and own ~= section then misdirected(handle) end -- and this ends here
  end
  if safe[headers:get(":method")] then headers:replace("x-envoy-retry-on", "reset") end
  local to = headers:get("upgrade") -- there only if the request asks for it
  if to then upgrade(handle, headers, to) end
end
