-- Holds jobs for optsched, which releases each on the nodes it chose. Goes beside slurm.conf, as job_submit.lua.
-- Where there is such a file already, call these two functions from those in it, before they return.
local PARTITIONS = { [@PARTITION@] = true }
local CONTROLLER = 0 -- whose jobs with optsched's own comment are its own, and are not held
local REPORTS = @REPORTS@ -- a folder that has one for each user, in which his jobs may report their steps
local HEARTBEAT = @HEARTBEAT@ -- a file with the Unix time at which a controller last looked at its jobs
local SILENT_S = 120 -- after so long without one, Slurm starts jobs as if optsched were not there
local ON_HOLD = " [on hold]"
local RELEASED = " released"
local GIVEN_BACK = "not planned: given back"

math.randomseed(os.time() + (tonumber(tostring({}):match("0x(%x+)") or "0", 16) % 1000000007))

local function is_held(job_desc, part_list)
  if job_desc.partition == nil or job_desc.partition == "" then
    for name, partition in pairs(part_list) do
      if partition.flag_default == 1 then return PARTITIONS[name] end
    end
    return false
  end
  for name in string.gmatch(job_desc.partition, "[^,]+") do
    if PARTITIONS[name] then return true end
  end
  return false
end

local function is_driven()
  local file = io.open(HEARTBEAT)
  if file == nil then return false end
  local at_s = file:read("*n")
  file:close()
  return at_s ~= nil and math.abs(os.time() - at_s) <= SILENT_S
end

local function token_of(text) return string.match(text or "", "^optsched (%d+%.%d+)") end

local function without_mark(text)
  local at = string.find(text or "", ON_HOLD, 1, true)
  return at and string.sub(text, 1, at - 1) or text or ""
end

function optsched_job_submit(job_desc, part_list, submit_uid)
  local comment = job_desc.comment or ""
  if submit_uid == CONTROLLER and string.match(comment, "^optsched:[^:]+:%d+$") then return slurm.SUCCESS end
  if not is_held(job_desc, part_list) then return slurm.SUCCESS end
  if not is_driven() then
    slurm.log_user("optsched does not answer; Slurm starts the job by itself")
    return slurm.SUCCESS
  end
  local token = string.format("%d.%09d", os.time(), math.random(0, 999999999))
  job_desc.admin_comment = "optsched " .. token
  if job_desc.priority == 0 then
    job_desc.comment = without_mark(comment) .. ON_HOLD
  elseif without_mark(comment) ~= comment then
    job_desc.comment = without_mark(comment)
  end
  job_desc.priority = 0
  if job_desc.requeue == slurm.NO_VAL16 then job_desc.requeue = 1 end -- whatever the cluster's JobRequeue says
  if job_desc.array_inx == nil and job_desc.script ~= nil then
    job_desc.environment["OPTSCHED_PROGRESS"] = string.format("%s/%d/%s.json", REPORTS, job_desc.user_id, token)
  end
  slurm.log_user("held for optsched, which starts it on the nodes it chooses")
  return slurm.SUCCESS
end

local SHAPE = {
  "partition", "features", "req_nodes", "exc_nodes", "reservation", "licenses", "tres_per_job", "tres_per_node",
  "tres_per_socket", "tres_per_task", "gres", "burst_buffer", "pn_min_memory", "pn_min_cpus",
}
local SHAPE_NUMBERS = { "min_nodes", "max_nodes", "min_cpus", "max_cpus", "num_tasks", "cpus_per_task", "ntasks_per_node" }

local function is_set(value)
  return value ~= nil and value ~= "" and value ~= slurm.NO_VAL and value ~= slurm.NO_VAL16 and value ~= slurm.NO_VAL64
end

-- Whether the change is one of what the job asks for: that is read when it is planned, and is not its user's any more.
local function changes_shape(job_desc)
  for _, name in ipairs(SHAPE) do
    if is_set(job_desc[name]) then return true end
  end
  for _, name in ipairs(SHAPE_NUMBERS) do
    local value = job_desc[name]
    if is_set(value) and value ~= slurm.NO_VAL - 1 then return true end
  end
  return false
end

-- Users hold and release such a job as any other; optsched hears of it by the job's comment, and decides.
function optsched_job_modify(job_desc, job_rec, part_list, modify_uid)
  local token = token_of(job_rec.admin_comment)
  local state = token and string.sub(job_rec.admin_comment, #("optsched " .. token) + 2) or ""
  if job_desc.admin_comment ~= nil and token ~= token_of(job_desc.admin_comment) and
     token_of(job_desc.admin_comment) ~= nil then
    slurm.log_user("this is another job than optsched takes it for")
    return slurm.ERROR
  end
  if not is_driven() or string.match(state, "^" .. GIVEN_BACK) then return slurm.SUCCESS end
  if modify_uid ~= CONTROLLER then
    if token ~= nil and changes_shape(job_desc) then
      slurm.log_user("optsched has planned with what it asks for; cancel it, and submit it again")
      return slurm.ERROR
    elseif token == nil and is_set(job_desc.partition) and is_held(job_desc, part_list) then
      slurm.log_user("jobs of this partition are started by optsched; submit it there")
      return slurm.ERROR
    end
  end
  local priority = job_desc.priority
  if token == nil or priority == nil or priority == slurm.NO_VAL then return slurm.SUCCESS end
  if modify_uid == CONTROLLER then
    if priority == 0 or string.match(state, "^not planned") then return slurm.SUCCESS end
    if state ~= "" and not string.match(state, RELEASED .. "$") then -- the controller has just written its key
      job_desc.admin_comment = job_rec.admin_comment .. RELEASED
    else
      job_desc.admin_comment = "optsched " .. token .. " " .. GIVEN_BACK
    end
    return slurm.SUCCESS
  elseif string.match(state, "^not planned") and priority ~= 0 then
    slurm.log_user("optsched does not start it, it is " .. state .. "; only an administrator may release it")
    return slurm.ERROR
  end
  local comment = without_mark(job_desc.comment or job_rec.comment)
  if priority == 0 then
    job_desc.comment = comment .. ON_HOLD
    slurm.log_user("optsched keeps it on hold")
  else
    job_desc.comment = comment == "" and " " or comment
    slurm.log_user("optsched starts it when it is its turn")
  end
  job_desc.priority = slurm.NO_VAL
  return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  return optsched_job_submit(job_desc, part_list, submit_uid)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return optsched_job_modify(job_desc, job_rec, part_list, modify_uid)
end

return slurm.SUCCESS
