-- Checks the key of a request inside Envoy. It refuses no request: the gate behind it refuses requests without a good
-- verdict, so an error in here refuses too. The text before this one defines names that the gateway shares, and
--   KEYS    one line per key, with tabs between: expiry (seconds since 1970, 0: never), permissions (separated by
--           spaces), principal (JSON), subject (Lua), principal (Lua)
--   INDEX   by environment the digests of its keys, sorted: sha256 in hex, then where the key's line begins in KEYS (10
--           digits). Nothing of both is read before it is needed: loading costs the same for one key and for 100,000.
-- The checks of a route are in its filter context.
-- The principal of a signed token is also written here: another filter has verified it and put its claims into metadata.

local bit = require("bit")
local band, bnot, bxor, ror, rshift = bit.band, bit.bnot, bit.bxor, bit.ror, bit.rshift
local tobit, tohex = bit.tobit, bit.tohex
local byte, find, gsub, lower, sub = string.byte, string.find, string.gsub, string.lower, string.sub

local ROUND = {
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
}
for i = 1, 64 do ROUND[i] = tobit(ROUND[i]) end

local words = {}
for i = 1, 64 do words[i] = 0 end

-- FIPS 180-4, in hex.
local function sha256(text)
  local length = #text
  local padded = text .. "\128" .. string.rep("\0", (55 - length) % 64) .. "\0\0\0\0"
    .. string.char(band(rshift(length, 21), 255), band(rshift(length, 13), 255), band(rshift(length, 5), 255), band(length * 8, 255))
  local h1, h2, h3, h4 = tobit(0x6a09e667), tobit(0xbb67ae85), tobit(0x3c6ef372), tobit(0xa54ff53a)
  local h5, h6, h7, h8 = tobit(0x510e527f), tobit(0x9b05688c), tobit(0x1f83d9ab), tobit(0x5be0cd19)
  for from = 1, #padded, 64 do
    for i = 1, 16 do
      local p, q, r, s = byte(padded, from + i * 4 - 4, from + i * 4 - 1)
      words[i] = tobit(p * 16777216 + q * 65536 + r * 256 + s)
    end
    for i = 17, 64 do
      local x, y = words[i - 15], words[i - 2]
      words[i] = tobit(words[i - 16] + bxor(ror(x, 7), ror(x, 18), rshift(x, 3))
        + words[i - 7] + bxor(ror(y, 17), ror(y, 19), rshift(y, 10)))
    end
    local a, b, c, d, e, f, g, h = h1, h2, h3, h4, h5, h6, h7, h8
    for i = 1, 64 do
      local one = tobit(h + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) + bxor(band(e, f), band(bnot(e), g)) + ROUND[i] + words[i])
      local two = tobit(bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + bxor(band(a, b), band(a, c), band(b, c)))
      h, g, f, e, d, c, b, a = g, f, e, tobit(d + one), c, b, a, tobit(one + two)
    end
    h1, h2, h3, h4 = tobit(h1 + a), tobit(h2 + b), tobit(h3 + c), tobit(h4 + d)
    h5, h6, h7, h8 = tobit(h5 + e), tobit(h6 + f), tobit(h7 + g), tobit(h8 + h)
  end
  return tohex(h1) .. tohex(h2) .. tohex(h3) .. tohex(h4) .. tohex(h5) .. tohex(h6) .. tohex(h7) .. tohex(h8)
end

local RECORD, DIGEST = 74, 64

local function read_key(from)
  local expires, permissions, header, subject, principal =
    string.match(KEYS, "^([%d.]+)\t([^\t\n]*)\t([^\t\n]*)\t([^\t\n]*)\t([^\n]*)", from)
  local permitted = {}
  for name in string.gmatch(permissions, "%S+") do permitted[name] = true end
  return { expires = tonumber(expires), permitted = permitted, header = header, subject = subject, principal = principal }
end

local function find_key(index, text)
  if not index then return nil end
  local wanted = sha256(text)
  local low, high = 0, #index / RECORD - 1
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local at = middle * RECORD
    local digest = sub(index, at + 1, at + DIGEST)
    if digest == wanted then return read_key(tonumber(sub(index, at + DIGEST + 1, at + RECORD))) end
    if digest < wanted then low = middle + 1 else high = middle - 1 end
  end
  return nil
end

local function unescaped(text)
  return (gsub(gsub(text, "+", " "), "%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

local function from_query(path, name)
  local at = find(path, "?", 1, true)
  if not at then return nil end
  for pair in string.gmatch(sub(path, at + 1), "[^&#]+") do
    local equals = find(pair, "=", 1, true)
    if equals and unescaped(sub(pair, 1, equals - 1)) == name then return unescaped(sub(pair, equals + 1)) end
  end
  return nil
end

local function stripped(location, text)
  if location.kind == "bearer" then
    if lower(sub(text, 1, 7)) ~= "bearer " then return nil end
    text = gsub(sub(text, 8), "^ +", "")
  end
  local prefix = location.prefix
  if sub(text, 1, #prefix) ~= prefix then return nil end
  text = sub(text, #prefix + 1)
  if text == "" then return nil end
  return text
end

-- Whether something is given there, and the key if it is a good one. Hashing costs more than all the rest, so good keys
-- that were seen are remembered as they were sent, in this worker and until the keys change. Only the usual spelling is:
-- so there can be no more of them than keys.
local function given(headers, location, index)
  local raw
  if location.kind == "query" then
    raw = from_query(headers:get(":path") or "", location.name)
  else
    raw = headers:get(location.name)
  end
  if not raw then return false, nil end
  local key = location.seen[raw]
  if key then return true, key end
  local text = stripped(location, raw)
  if not text then return false, nil end
  key = find_key(index, text)
  if key and raw == location.usual .. text then location.seen[raw] = key end
  return true, key
end

-- A route's text -> its rules: read once per worker, not once per request.
local rules = {}
local count = 0
local function read_rules(text)
  local made = { tell = false }
  for line in string.gmatch(text, "[^\n]+") do
    local kind, name, prefix = string.match(line, "^(%a+)\t([^\t]*)\t([^\t]*)$")
    local rule = made[#made]
    if kind == "environment" then
      made.index = INDEX[name]
    elseif kind == "tell" then
      made.tell = true
    elseif kind == "token" then
      table.insert(made, { claims = name, subject = prefix })
    elseif kind == "policy" then
      table.insert(made, { header = name, locations = {}, permissions = {} })
    elseif kind == "permission" then
      table.insert(rule.permissions, name)
    elseif kind == "bearer" then
      local usual = "Bearer " .. prefix
      table.insert(rule.locations, { kind = kind, name = "authorization", prefix = prefix, usual = usual, seen = {} })
    else
      table.insert(rule.locations, { kind = kind, name = name, prefix = prefix, usual = prefix, seen = {} })
    end
  end
  if count >= 10000 then rules, count = {}, 0 end
  rules[text], count = made, count + 1
  return made
end

local function judge(handle, headers, index, rule)
  local any, key
  for i = 1, #rule.locations do
    any, key = given(headers, rule.locations[i], index)
    if any then break end
  end
  if not any then return MISSING end
  if not key or (key.expires > 0 and key.expires * 1000 <= tonumber(handle:timestampString())) then return INVALID end
  for i = 1, #rule.permissions do
    if not key.permitted[rule.permissions[i]] then return FORBIDDEN end
  end
  return ALLOWED, key
end

-- Made when a key is first used: most never are.
local function of_key(key)
  if not key.told then key.told = loadstring("return " .. key.subject .. "," .. key.principal) end
  return key.told()
end

-- JSON in ASCII: a header can carry nothing else.
local function escaped(char)
  local one, two, three, four = byte(char, 1, 4)
  if #char == 1 then return string.format("\\u%04x", one < 128 and one or 0xfffd) end
  if #char == 2 then return string.format("\\u%04x", (one - 192) * 64 + two - 128) end
  if #char == 3 then return string.format("\\u%04x", (one - 224) * 4096 + (two - 128) * 64 + three - 128) end
  if #char > 4 then return "\\ufffd" end
  local code = (one - 240) * 262144 + (two - 128) * 4096 + (three - 128) * 64 + four - 128 - 65536
  return string.format("\\u%04x\\u%04x", 55296 + math.floor(code / 1024), 56320 + code % 1024)
end

local function quoted(text)
  text = gsub(text, '[%c"\\\127]', escaped)
  return '"' .. gsub(gsub(text, "[\194-\244][\128-\191]+", escaped), "[\128-\255]", escaped) .. '"'
end

local json

local function listed(values)
  local parts = {}
  for i = 1, #values do parts[i] = json(values[i]) end
  return "[" .. table.concat(parts, ",") .. "]"
end

function json(value)
  local kind = type(value)
  if kind == "string" then return quoted(value) end
  if kind == "boolean" then return value and "true" or "false" end
  if kind == "number" and value == math.floor(value) and math.abs(value) < 1e15 then return string.format("%.0f", value) end
  if kind == "number" and value - value == 0 then return string.format("%.14g", value) end
  if kind ~= "table" then return "null" end
  if value[1] ~= nil then return listed(value) end
  local names, parts = {}, {}
  for name in pairs(value) do table.insert(names, tostring(name)) end
  table.sort(names)
  for i = 1, #names do parts[i] = quoted(names[i]) .. ":" .. json(value[names[i]]) end
  return "{" .. table.concat(parts, ",") .. "}"
end

local function of_token(handle, rule)
  local said = handle:streamInfo():dynamicMetadata():get(JWT_METADATA)
  local claims = said and said[rule.claims]
  if not claims then return nil end
  local subject, allowed = claims[rule.subject], {}
  if type(subject) ~= "string" then subject = subject == nil and "" or json(subject) end
  if type(claims.permissions) == "table" then
    allowed = claims.permissions
  elseif type(claims.scope) == "string" then
    for name in string.gmatch(claims.scope, "%S+") do table.insert(allowed, name) end
  end
  return '{"meta":' .. json(claims) .. ',"permissions":' .. listed(allowed) .. ',"subject":' .. quoted(subject)
    .. ',"type":"JWT","version":"v1"}'
end

function envoy_on_request(handle)
  local text = handle:filterContext():get(RULES)
  local found = rules[text] or read_rules(text)
  local headers, good, principal = handle:headers(), nil, nil
  for i = 1, #found do
    local rule = found[i]
    if rule.claims then
      principal = principal or of_token(handle, rule)
    else
      local verdict, key = judge(handle, headers, found.index, rule)
      headers:replace(rule.header, verdict)
      good = good or key
      principal = principal or (key and key.header)
    end
  end
  if principal then headers:replace(PRINCIPAL_HEADER, principal) end
  if good and found.tell then
    local subject, principal = of_key(good)
    local metadata = handle:streamInfo():dynamicMetadata()
    metadata:set(METADATA, SUBJECT, subject)
    metadata:set(METADATA, PRINCIPAL, principal)
  end
end
