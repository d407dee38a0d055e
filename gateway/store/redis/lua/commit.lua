-- Compare and write: changes nothing unless every row that was read is still the same.
--
-- KEYS: counter of revisions, lane of the node, name of a copy under way, rows that changed since that copy read them,
-- description of the store.
-- ARGV: number of the request in its lane ('0': it only checks), revisions that it needs; the life that the node knows,
-- the highest revision that it was told of, what it knows of its lane; '1' to be told the time; then nine lists. Each
-- begins with its length:
--   small: a key, and how its value begins; '' for a key that must be absent
--   large: likewise; their values are not read as a whole
--   counts: a sorted set, and how many members it has
--   rows: a key and its value, stored behind the number of this commit
--   fading: likewise, and the seconds for which it is stored
--   removed: a key
--   places: a sorted set, then a list: a score as an offset from the number of this commit, and its member
--   commands: the number of its words, and the words
--   freed: sorted sets; when one is not empty, `message` is published on `channel` (the last two arguments)
-- Nothing but reads comes before the first write, and nothing but data after it: a script that fails is not rolled back.
-- Each call costs more than what it does, so what can share one does, up to AT_ONCE at a time.
local AT_ONCE = 1000
local call, format = redis.call, string.format
local at = 6
local function take()
    at = at + 1
    return ARGV[at]
end
local function take_some(left)
    return math.min(left, AT_ONCE)
end

local number, needs = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = ARGV[6] == '1' and call('TIME') or {'', ''}
local changed, now = {}, nil
local left = tonumber(take())
repeat
    local some, keys = take_some(left), {KEYS[1], KEYS[2], KEYS[3]}
    for i = 1, some do
        keys[3 + i] = ARGV[at + 2 * i - 1]
    end
    local values = call('MGET', unpack(keys))
    for i = 1, some do
        local value, stamp = values[3 + i], ARGV[at + 2 * i]
        if (value and string.sub(value, 1, #stamp)) ~= (stamp ~= '' and stamp) then
            changed[#changed + 1] = keys[3 + i]
        end
    end
    at, left, now = at + 2 * some, left - some, values
until left == 0
local rev, lane, is_copied = tonumber(now[1] or '0'), now[2] or '', now[3]
local lost = rev < tonumber(ARGV[4])
if lane ~= ARGV[5] then
    local done, base, freed = string.match(lane, '^(%d+) (%d+) (%d)$')
    if number > 0 and done and tonumber(done) >= number then
        call('SET', KEYS[2], lane, 'EX', 2592000)  -- WAIT counts the writes of its own connection alone
        return {'again', base, time[1], time[2], freed}
    end
    lost = lost or tonumber(done or '0') < tonumber(string.match(ARGV[5], '^%d+') or '0')
end
local life = call('HGET', KEYS[5], 'life') or ''
if lost or life ~= ARGV[3] then
    return {'lost', '0', time[1], time[2], '0', life}
end

for _ = 1, tonumber(take()) do
    local key, stamp = take(), take()
    if call('GETRANGE', key, 0, #stamp - 1) ~= stamp then
        changed[#changed + 1] = key
    end
end
for _ = 1, tonumber(take()) do
    local key, count = take(), take()
    if call('ZCARD', key) ~= tonumber(count) then
        changed[#changed + 1] = key
    end
end
if #changed > 0 then
    return {'changed', '0', time[1], time[2], '0', unpack(changed, 1, math.min(#changed, AT_ONCE))}
end
if number == 0 then
    return {'done', '0', time[1], time[2], '0'}
end

local base = format('%d', rev)
local words = {'MSET', KEYS[1], format('%d', rev + needs)}
local function note(key)
    if is_copied then
        call('SADD', KEYS[4], key)
    end
end
left = tonumber(take())
repeat
    local some = take_some(left)
    for i = 1, some do
        words[#words + 1] = ARGV[at + 2 * i - 1]
        words[#words + 1] = base .. ' ' .. ARGV[at + 2 * i]
    end
    call(unpack(words))
    for i = 1, some do
        note(ARGV[at + 2 * i - 1])
    end
    at, left, words = at + 2 * some, left - some, {'MSET'}
until left == 0
for _ = 1, tonumber(take()) do
    local key, value = take(), take()
    call('SET', key, base .. ' ' .. value, 'EX', take())
    note(key)
end
for _ = 1, tonumber(take()) do
    local key = take()
    call('DEL', key)
    note(key)
end
for _ = 1, tonumber(take()) do
    local key, members = take(), tonumber(take())
    while members > 0 do
        local some = take_some(members)
        words = {'ZADD', key}
        for i = 1, some do
            words[2 * i + 1] = format('%d', rev + ARGV[at + 2 * i - 1])
            words[2 * i + 2] = ARGV[at + 2 * i]
        end
        call(unpack(words))
        at, members = at + 2 * some, members - some
    end
end
for _ = 1, tonumber(take()) do
    local count = tonumber(take())
    call(unpack(ARGV, at + 1, at + count))
    at = at + count
end
if is_copied then
    call('EXPIRE', KEYS[4], 120)
end
local freed = '0'
for _ = 1, tonumber(take()) do
    if call('ZCARD', take()) > 0 then
        freed = '1'
    end
end
if freed == '1' then
    call('PUBLISH', ARGV[#ARGV - 1], ARGV[#ARGV])
end
call('SET', KEYS[2], format('%d %s %s', number, base, freed), 'EX', 2592000)
return {'done', base, time[1], time[2], freed}
