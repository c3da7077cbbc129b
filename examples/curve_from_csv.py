"""From a CSV of measured speed-ups to a plotted curve, a plan and a simulated day."""

from boa_daemon import Problem, frontier, plan, simulate

problem = Problem.from_csv("examples/classes.csv", prices={"a10g": 1.418})
curve = frontier(problem)
print(f"knee at ${curve.knee_budget:.2f}/hour: {curve.hours_at(curve.knee_budget):.2f} hours a job")
curve.plot(mark=28.0).figure.savefig("curve.png")
answer = plan(problem, "28/h")
for row in answer.rows:
    print(f"{row['class']:9} {row['gpus']:2} x {row['gpu_type']}, {row['hours']:.2f} hours a job")
day = [(3600.0 * hour, name) for hour in range(24) for name in ("vision", "vision", "speech", "language")]
run = simulate(problem, day, "60/h", boot_seconds=240.0)
print(f"{run.title}: {run.mean_jct_hours:.2f} hours a job for ${run.mean_usd_per_hour:.2f}/hour")
