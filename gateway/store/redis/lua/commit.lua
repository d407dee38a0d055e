-- Compare and write: changes nothing unless every row that was read is still the same.
--
-- KEYS: counter of revisions, lane of the node, name of a copy under way, rows that changed since that copy read them,
-- description of the store.
-- ARGV: the life that the node knows, what it knows of its lane, numbers, lengths; then nine lists.
-- Numbers, packed: number of the request in its lane (0: it only checks), revisions that it needs, the highest revision
-- that the node knows, the one that the last request of its lane left, 1 to be told the time; then how long each
-- list is:
--   small: keys, then how the value of each begins; '' for a key that must be absent
--   large: a key and how its value begins; these values are not read as a whole
--   counts: a sorted set, and how many members it has
--   rows: a key and its value, behind the number of this commit
--   fading: likewise, and the seconds for which it is stored
--   removed: a key
--   places: a sorted set; scores that count from the number of this commit, each with its member
--   commands: the words of a command
--   freed: sorted sets; when one is not empty, `message` is published on `channel` (the last two arguments then)
-- Lengths, packed in two bytes each: members of each of `places`, words of each of `commands`. No longer than AT_ONCE.
-- The number of a commit is the revision that the store has then. The node writes the highest that it knows, which is
-- mostly right; here it is corrected.
-- Nothing but reads comes before the first write, and nothing but data after it: a script that fails is not rolled back.
-- Each call costs more than what it does, so what can share one does, up to AT_ONCE at a time. So does each argument
-- and each text that is made: what the script corrects it corrects where the arguments stand.
local AT_ONCE = 1000
local argv, call, format, find, byte = ARGV, redis.call, string.format, string.find, string.byte
local counter, own, lane_known = KEYS[1], KEYS[2], argv[2]
local number, needs, told, left, asks, small, large, counts, rows, fading, removed, places, commands, frees =
    struct.unpack('<ddddI4I4I4I4I4I4I4I4I4I4', argv[3])
local at = 4

local time = asks == 1 and call('TIME') or {'', ''}
local changed, now = {}, nil
local function compare(values, first, count, skipped)
    for i = 1, count do
        local value, stamp = values[skipped + i], argv[first + small + i]
        if stamp == '' and value or stamp ~= '' and not (value and find(value, stamp, 1, true) == 1) then
            changed[#changed + 1] = argv[first + i]
        end
    end
end
local first = math.min(small, AT_ONCE)
now = call('MGET', counter, own, KEYS[3], unpack(argv, at + 1, at + first))
compare(now, at, first, 3)
for after = first, small - 1, AT_ONCE do
    local some = math.min(small - after, AT_ONCE)
    compare(call('MGET', unpack(argv, at + after + 1, at + after + some)), at + after, some, 0)
end
at = at + 2 * small
local rev, lane, is_copied = tonumber(now[1] or 0), now[2] or '', now[3]
local lost = rev < told
if lane ~= lane_known then
    local done, base, freed = string.match(lane, '^(%d+) (%d+) (%d)$')
    if number > 0 and done and tonumber(done) >= number then
        call('SET', own, lane, 'EX', '2592000')  -- WAIT counts the writes of its own connection alone
        return {'again', base, time[1], time[2], freed}
    end
    lost = lost or tonumber(done or 0) < tonumber(string.match(lane_known, '^%d+') or 0)
end
if lost or rev ~= left or lane ~= lane_known or lane == '' then  -- a change of the life raises the counter
    local life = call('HGET', KEYS[5], 'life') or ''
    if lost or life ~= argv[1] then
        return {'lost', '0', time[1], time[2], '0', life}
    end
end

for i = at + 1, at + 2 * large, 2 do
    if call('GETRANGE', argv[i], 0, #argv[i + 1] - 1) ~= argv[i + 1] then
        changed[#changed + 1] = argv[i]
    end
end
at = at + 2 * large
for i = at + 1, at + 2 * counts, 2 do
    if call('ZCARD', argv[i]) ~= tonumber(argv[i + 1]) then
        changed[#changed + 1] = argv[i]
    end
end
at = at + 2 * counts
if #changed > 0 then
    return {'changed', '0', time[1], time[2], '0', unpack(changed, 1, math.min(#changed, AT_ONCE))}
end
if number == 0 then
    return {'done', '0', time[1], time[2], '0'}
end

local base, fading_at = format('%d', rev), at + 2 * rows
if rev ~= told then
    local stamp, from, shift = base .. ' ', #format('%d', told) + 2, rev - told
    for i = at + 2, fading_at, 2 do
        argv[i] = stamp .. string.sub(argv[i], from)
    end
    for i = fading_at + 2, fading_at + 3 * fading, 3 do
        argv[i] = stamp .. string.sub(argv[i], from)
    end
    local first_of = fading_at + 3 * fading + removed
    for i = 1, 2 * places, 2 do
        local low, high = byte(argv[4], i, i + 1)
        local last = first_of + 1 + 2 * (low + 256 * high)
        for j = first_of + 2, last, 2 do
            argv[j] = format('%d', argv[j] + shift)
        end
        first_of = last
    end
end
if is_copied then
    local function note(from, last, step)
        for i = from, last, step do
            call('SADD', KEYS[4], argv[i])
        end
    end
    local removed_at = fading_at + 3 * fading
    note(at + 1, fading_at, 2)
    note(fading_at + 1, removed_at, 3)
    note(removed_at + 1, removed_at + removed, 1)
    call('EXPIRE', KEYS[4], 120)
end
first = math.min(rows, AT_ONCE)
call('MSET', counter, format('%d', rev + needs), unpack(argv, at + 1, at + 2 * first))
for after = first, rows - 1, AT_ONCE do
    local some = math.min(rows - after, AT_ONCE)
    call('MSET', unpack(argv, at + 2 * after + 1, at + 2 * (after + some)))
end
at = fading_at
for i = at + 1, at + 3 * fading, 3 do
    call('SET', argv[i], argv[i + 1], 'EX', argv[i + 2])
end
at = at + 3 * fading
for i = at + 1, at + removed do
    call('DEL', argv[i])
end
at = at + removed
local lengths = argv[4]
for i = 1, 2 * places, 2 do
    local low, high = byte(lengths, i, i + 1)
    local last = at + 1 + 2 * (low + 256 * high)
    call('ZADD', unpack(argv, at + 1, last))
    at = last
end
for i = 2 * places + 1, 2 * (places + commands), 2 do
    local low, high = byte(lengths, i, i + 1)
    local last = at + low + 256 * high
    call(unpack(argv, at + 1, last))
    at = last
end
local freed = '0'
for i = at + 1, at + frees do
    if call('ZCARD', argv[i]) > 0 then
        freed = '1'
    end
end
if freed == '1' then
    call('PUBLISH', argv[at + frees + 1], argv[at + frees + 2])
end
call('SET', own, format('%d %s %s', number, base, freed), 'EX', '2592000')
if asks == 1 then  -- about once a second: of the two only the first goes to replicas, the last stays on this disk
    call('HSET', KEYS[5], 'origin', 'copied')
    redis.set_repl(redis.REPL_AOF)
    call('HSET', KEYS[5], 'origin', 'own')
end
return {'done', base, time[1], time[2], freed}
