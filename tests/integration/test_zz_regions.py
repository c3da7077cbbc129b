from __future__ import annotations
import sys, time, json, subprocess
sys.path.insert(0, "/work/wt/account/tests/integration"); sys.path.insert(0,"/work/wt/account/tests")
from pathlib import Path
import pytest
import test_two_regions as t
from test_two_regions import *

class Cloud(t._Cloud):
    how = ""
    def handle(self, call, body, forward):
        if call.region == t.FAR and call.service != "iam" and self.how == "not opted in":
            if call.service == "ec2":
                return Answer(401, b'<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error><Code>AuthFailure</Code><Message>AWS was not able to validate the provided access credentials</Message></Error></Errors><RequestID>1</RequestID></Response>', {"content-type": "text/xml"})
            return Answer(400, b'{"__type":"UnrecognizedClientException","message":"The security token included in the request is invalid."}', {"content-type": "application/x-amz-json-1.1"})
        if self.how == "no pricing" and call.service == "pricing":
            return Answer(400, b'{"__type":"AccessDeniedException","message":"User: arn:aws:iam::1:role/x is not authorized to perform: pricing:GetProducts"}', {"content-type": "application/x-amz-json-1.1"})
        if call.region == t.FAR and call.service != "iam" and self.how == "silent":
            time.sleep(40)
            return Answer(503, b"", {})
        return super().handle(call, body, forward)

t._Cloud = Cloud
site = t.site

@pytest.mark.parametrize("how", ["not opted in", "no pricing", "silent"])
def test_it(site, how):
    out = open(f"/tmp/expl/region-{how.replace(' ','_')}.txt", "w")
    def boa(*words, timeout=120):
        t0 = time.time()
        try:
            done = subprocess.run([sys.executable, "-m", "boa_daemon", *words], cwd=site.folder, env=site.environment, capture_output=True, text=True, timeout=timeout)
            out.write(f"\n$ boa {' '.join(words)}   rc {done.returncode} in {time.time()-t0:.0f} s\n{done.stdout[-3500:]}\n--err--\n{done.stderr[-2500:]}\n"); out.flush()
        except subprocess.TimeoutExpired as e:
            out.write(f"\n$ boa {' '.join(words)} TIMED OUT {timeout}\n"); out.flush()
    site.fake.how = how
    boa("up", "--cluster", "lab", "--type", "g5.xlarge", "--usd-per-hour", "4")
    boa("doctor")
    (site.folder / "hello.yaml").write_text("name: hello\nclass: default\nmax_gpus: 1\nrun: echo hi\n")
    site.fake.terms.stock.clear()
    boa("run", "hello.yaml", "--max-usd", "2", timeout=150)
    out.close()
